-- How a job waits: how many before it in its session, who is inside, and what no worker offers. One that a lost worker held waits again; if no
-- worker is left at all, nobody has put it back yet.
create or replace function takopi.waiting(_job text) returns jsonb language sql stable as $$
  select jsonb_build_object('state', case when j.state = 'running' and not exists (select 1 from takopi.worker w where w.lease_until > clock_timestamp()) then 'queued' else j.state end, 'sid', s.sid,
    'ahead', (select count(*) from takopi.job o where o.sid = j.sid and o.pos < j.pos and o.state = 'queued') + (s.running is not null and s.running < j.pos)::int,
    'holder', s.worker,
    'stranded', case when s.stays is not null and not exists (select 1 from takopi.worker w where w.machine = s.home and w.lease_until > clock_timestamp()) then s.home end,
    'min_version', s.min_version,
    'needs', to_jsonb(p.needs),
    'offered', exists (select 1 from takopi.worker w where p.needs <@ w.offers and w.lease_until > clock_timestamp() and not w.draining and coalesce((w.versions->>s.engine)::bigint, 0) >= s.min_version),
    'missing', (select coalesce(jsonb_agg(n), '[]') from unnest(p.needs) n where not exists (select 1 from takopi.worker w where n = any (w.offers) and w.lease_until > clock_timestamp() and not w.draining)))
  from takopi.job j join takopi.session s on s.sid = j.sid join takopi.pool p on p.id = j.pool where j.id = _job and j.owner = session_user
$$;

-- Replacing a function resets what 0003 set; who may call it stays.
alter function takopi.waiting(text) security definer set search_path = pg_catalog, pg_temp;
