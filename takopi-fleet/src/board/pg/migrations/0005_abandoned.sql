-- Whether nobody answers what a job of this worker asks: its submitter is silent, and could have been heard, as in reap().
create function takopi.is_abandoned(_worker text, _job text, _steady interval, _grace interval) returns boolean language sql stable as $$
  select takopi.is_own(_worker)
    and exists (select 1 from takopi.job j where j.id = _job and j.worker = _worker
      and not exists (select 1 from takopi.submitter b where b.id = j.submitter and b.lease_until > clock_timestamp()))
    and exists (select 1 from takopi.worker w where w.beaten > clock_timestamp() - _steady and w.steady < clock_timestamp() - _grace)
$$;

do $$
begin
  alter function takopi.is_abandoned(text, text, interval, interval) security definer set search_path = pg_catalog, pg_temp;
  revoke all on function takopi.is_abandoned(text, text, interval, interval) from public;
  if exists (select 1 from pg_roles where rolname = 'takopi_work') then
    grant execute on function takopi.is_abandoned(text, text, interval, interval) to takopi_work;
  end if;
end $$;
