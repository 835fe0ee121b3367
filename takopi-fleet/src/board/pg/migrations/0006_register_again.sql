-- A worker comes; those that were on its machine before are gone. Refused while another one of that name lives: they would take each
-- other's sessions. The answer to the first call may have been lost: again, it says what holds now, and its lease begins now.
create or replace function takopi.register(_id text, _machine text, _instance uuid, _offers text[], _versions jsonb, _slots int, _ttl interval) returns void language plpgsql as $$
begin
  -- One at a time of a name.
  perform pg_advisory_xact_lock(hashtextextended(_machine, 7251303));
  if exists (select 1 from takopi.worker w where w.machine = _machine and w.lease_until > clock_timestamp() and (w.instance <> _instance or w.owner <> session_user)) then
    raise exception 'another worker named % serves this fleet: give this one a name of its own, or stop the other one and wait until its lease is over', _machine;
  end if;
  delete from takopi.worker where machine = _machine and id <> _id;
  insert into takopi.worker as w (id, machine, instance, lease_until, offers, versions, slots) values (_id, _machine, _instance, clock_timestamp() + _ttl, _offers, _versions, _slots)
    on conflict (id) do update set lease_until = excluded.lease_until, offers = excluded.offers, versions = excluded.versions, slots = excluded.slots where w.owner = session_user;
end $$;

-- Replacing a function resets what 0003 set; who may call it stays.
alter function takopi.register(text, text, uuid, text[], jsonb, int, interval) security definer set search_path = pg_catalog, pg_temp;
