-- Enqueues; again with the same id attaches. Outcomes: new, known, foreign (the id is another user's), no_session, queue_full. A new session
-- that was reported already has that name, too: the database may be one of before it was known.
create or replace function takopi.enqueue(_jobs jsonb, _max_queued int) returns table (id text, outcome text) language plpgsql as $$
#variable_conflict use_column
declare j jsonb; s uuid; p bigint; pl int; o name;
begin
  for j in select value from jsonb_array_elements(_jobs) loop
    id := j->>'id';
    select job.owner into o from takopi.job where job.id = j->>'id';
    if found then
      outcome := case when o = session_user then 'known' else 'foreign' end;
      if o = session_user then
        update takopi.job set submitter = j->>'submitter' where job.id = j->>'id' and state <> 'done';
        insert into takopi.name (engine, value, sid) select j->>'engine', j->>'name', q.sid from takopi.job q where q.id = j->>'id' and j ? 'name' on conflict do nothing;
      end if;
      return next; continue;
    end if;
    pl := takopi.pool_of(j->>'engine', array(select jsonb_array_elements_text(j->'needs')));
    if j ? 'resume' then
      select n.sid into s from takopi.name n join takopi.session t on t.sid = n.sid
        where n.engine = j->>'engine' and n.value = j->>'resume' and t.owner = session_user;
      if not found then outcome := 'no_session'; return next; continue; end if;
    else
      s := (j->>'sid')::uuid;
      insert into takopi.session (sid, engine, pool, place) values (s, j->>'engine', pl, j->>'place') on conflict (sid) do nothing;
    end if;
    insert into takopi.job (id, sid, pool, submitter, spec, blobs, on_loss, on_gone)
      values (j->>'id', s, pl, j->>'submitter', j->'spec', array(select decode(b, 'base64') from jsonb_array_elements_text(j->'blobs') b), j->>'on_loss', j->>'on_gone')
      on conflict (id) do nothing returning pos into p;
    if p is null then outcome := 'known'; return next; continue; end if;
    -- Counting takes long where many wait: looked at now and then, so the limit is one of about this many.
    if p % 64 = 0 and (select count(*) from (select 1 from takopi.job q where q.owner = session_user and q.state = 'queued' limit _max_queued + 1) as counted) > _max_queued then
      delete from takopi.job where pos = p;
      outcome := 'queue_full'; return next; continue;
    end if;
    update takopi.session t set
        head     = case when t.worker is null then least(t.head, p) else t.head end,
        pool     = case when t.worker is null and (t.head is null or p < t.head) then pl else t.pool end,
        ready_at = case when t.worker is null then coalesce(t.ready_at, clock_timestamp()) else t.ready_at end,
        place    = coalesce(j->>'place', t.place),
        last_used = clock_timestamp()
      where t.sid = s and t.owner = session_user;
    if not found then
      delete from takopi.job where pos = p;
      outcome := 'no_session'; return next; continue;
    end if;
    if j ? 'name' then
      insert into takopi.name (engine, value, sid) values (j->>'engine', j->>'name', s) on conflict do nothing;
    end if;
    outcome := 'new'; return next;
  end loop;
end $$;

-- How a job waits: how many before it in its session, who is inside, what no worker offers, and how often it was begun. One that a lost worker held
-- waits again; if no worker is left at all, nobody has put it back yet.
create or replace function takopi.waiting(_job text) returns jsonb language sql stable as $$
  select jsonb_build_object('state', case when j.state = 'running' and not exists (select 1 from takopi.worker w where w.lease_until > clock_timestamp()) then 'queued' else j.state end, 'sid', s.sid, 'attempts', j.attempts,
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
alter function takopi.enqueue(jsonb, int) security definer set search_path = pg_catalog, pg_temp;
alter function takopi.waiting(text) security definer set search_path = pg_catalog, pg_temp;
