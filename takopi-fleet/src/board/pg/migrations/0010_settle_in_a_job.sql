-- Settles a request of the job that the worker holds under this token: one of the same name to another job stays. That of three arguments
-- settles those of all its jobs; workers that were not updated yet call it.
create function takopi.settle(_worker text, _job text, _token bigint, _id text, _taken boolean) returns void language sql as $$
  update takopi.control c set state = case when _taken then 'taken' else 'refused' end
    from takopi.job j join takopi.session s on s.sid = j.sid and s.running = j.pos
    where c.job = _job and c.id = _id and c.state = 'new' and j.id = c.job and s.worker = _worker and s.token = _token and takopi.is_own(_worker)
$$;

do $$
begin
  alter function takopi.settle(text, text, bigint, text, boolean) security definer set search_path = pg_catalog, pg_temp;
  revoke all on function takopi.settle(text, text, bigint, text, boolean) from public;
  if exists (select 1 from pg_roles where rolname = 'takopi_work') then
    grant execute on function takopi.settle(text, text, bigint, text, boolean) to takopi_work;
  end if;
end $$;
