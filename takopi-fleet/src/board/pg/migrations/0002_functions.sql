-- The protocol. Whoever may call these functions can take part.
--
-- None of them notifies: NOTIFY takes a lock that all notifying commits of the server share, and holds it while the log is
-- synced. Bells are rung on a connection of their own, many in one, without waiting for the disk.
--
-- Locks are always taken in the order worker, session, job.

create function takopi.protocol() returns int language sql immutable as $$ select 1 $$;

-- Whether a worker is one of the caller's: nobody works in the name of another's.
create function takopi.is_own(_worker text) returns boolean language sql stable as $$
  select exists (select 1 from takopi.worker w where w.id = _worker and w.owner = session_user)
$$;

-- The end of a job that no engine ended.
create function takopi.failure(_engine text, _reason text, _error text) returns jsonb language sql immutable as $$
  select jsonb_build_object('type', 'completed', 'engine', _engine, 'ok', false, 'answer', '', 'error', _error, 'reason', _reason)
$$;

-- The last place of an attempt: the result comes behind all its events.
create function takopi.last_seq(_attempts int) returns bigint language sql immutable as $$ select _attempts::bigint * 1000000000 + 999999999 $$;

-- Nobody is in the session any more, and the oldest of its waiting jobs is its head. The caller has locked its row.
create function takopi.leave(_sid uuid) returns void language plpgsql as $$
declare h bigint; p int;
begin
  select j.pos, j.pool into h, p from takopi.job j where j.sid = _sid and j.state = 'queued' order by j.sid, j.pos limit 1;
  update takopi.session s set worker = null, running = null, claim = null, head = h, pool = coalesce(p, s.pool),
    ready_at = case when h is null then null when s.head = h then s.ready_at else clock_timestamp() end where s.sid = _sid;
end $$;

-- A running job that its worker does not run any more, and which has no result: it waits again at its place, or ends. One that was not
-- begun has lost no attempt; one that was cancelled is not begun again. Whether it ended; null if it was not running. The caller has locked the session's row.
create function takopi.give_up(_pos bigint, _engine text, _worker text, _begun boolean, _max_attempts int) returns boolean language plpgsql as $$
declare j takopi.job; r jsonb;
begin
  select * into j from takopi.job q where q.pos = _pos and q.state = 'running' for update;
  if not found then return null; end if;
  if exists (select 1 from takopi.control c where c.job = j.id and c.kind = 'cancel' and c.state = 'new') then
    r := takopi.failure(_engine, 'interrupted', 'interrupted');
  elsif _begun and (j.on_loss = 'fail' or j.attempts >= _max_attempts) then
    r := takopi.failure(_engine, 'worker_lost', 'the worker ' || _worker || ' was lost while it ran this' || case when j.attempts > 1 then ' (attempt ' || j.attempts || ')' else '' end);
  end if;
  if r is null then
    update takopi.job q set state = 'queued', lost = case when _begun then _worker else q.lost end, worker = null, token = null, attempts = q.attempts - (not _begun)::int where q.pos = _pos;
    update takopi.control c set state = 'new' where c.job = j.id and c.kind = 'steer' and c.state = 'taken';
    return false;
  end if;
  update takopi.job q set state = 'done', lost = _worker, worker = null, token = null, done = clock_timestamp(), blobs = null, result_seq = takopi.last_seq(q.attempts), result = r where q.pos = _pos;
  update takopi.control c set state = 'refused' where c.job = j.id and c.state = 'new';
  return true;
end $$;

create function takopi.pool_of(_engine text, _needs text[]) returns int language plpgsql as $$
declare p int;
begin
  select id into p from takopi.pool where needs = _needs;
  if p is null then
    insert into takopi.pool (engine, needs) values (_engine, _needs) on conflict (needs) do nothing;
    select id into p from takopi.pool where needs = _needs;
  end if;
  return p;
end $$;

-- Enqueues; again with the same id attaches. Outcomes: new, known, foreign (the id is another user's), no_session, queue_full.
create function takopi.enqueue(_jobs jsonb, _max_queued int) returns table (id text, outcome text) language plpgsql as $$
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
    outcome := 'new'; return next;
  end loop;
end $$;

-- What happened in these jobs behind the caller's cursors, in order; the result is last.
create function takopi.follow(_jobs text[], _after bigint[], _max int) returns table (job text, seq bigint, body jsonb) language sql stable as $$
  select w.id, e.seq, e.body from unnest(_jobs, _after) as w (id, after)
    join takopi.job j on j.id = w.id and j.owner = session_user
    cross join lateral (
      select r.seq, r.body from (
        (select seq, body from takopi.event where event.job = j.id and event.seq > w.after and event.seq < coalesce(j.result_seq, 9223372036854775807) order by event.seq limit _max)
        union all
        select j.result_seq, jsonb_build_object('event', j.result) where j.result_seq > w.after) as r
      order by r.seq limit _max) as e
    order by w.id, e.seq
$$;

-- How a job waits: how many before it in its session, who is inside, and what no worker offers.
create function takopi.waiting(_job text) returns jsonb language sql stable as $$
  select jsonb_build_object('state', j.state, 'sid', s.sid,
    'ahead', (select count(*) from takopi.job o where o.sid = j.sid and o.pos < j.pos and o.state = 'queued') + (s.running is not null and s.running < j.pos)::int,
    'holder', s.worker,
    'stranded', case when s.stays is not null and not exists (select 1 from takopi.worker w where w.machine = s.home and w.lease_until > clock_timestamp()) then s.home end,
    'min_version', s.min_version,
    'needs', to_jsonb(p.needs),
    'offered', exists (select 1 from takopi.worker w where p.needs <@ w.offers and w.lease_until > clock_timestamp() and not w.draining and coalesce((w.versions->>s.engine)::bigint, 0) >= s.min_version),
    'missing', (select coalesce(jsonb_agg(n), '[]') from unnest(p.needs) n where not exists (select 1 from takopi.worker w where n = any (w.offers) and w.lease_until > clock_timestamp() and not w.draining)))
  from takopi.job j join takopi.session s on s.sid = j.sid join takopi.pool p on p.id = j.pool where j.id = _job and j.owner = session_user
$$;

-- Cancels, answers or steers a job. The state it is in now, and who must be told: unknown, refused, taken, new.
create function takopi.control(_id text, _job text, _kind text, _body jsonb) returns table (state text, worker text) language plpgsql as $$
#variable_conflict use_column
declare j takopi.job; e text;
begin
  select * into j from takopi.job where id = _job and (owner = session_user or takopi.is_admin());
  if not found then return query select 'unknown', null::text; return; end if;
  select s.engine into e from takopi.session s where s.sid = j.sid for update;
  select * into j from takopi.job where id = _job for update;
  if j.state = 'done' then
    return query select coalesce((select c.state from takopi.control c where c.id = _id), 'refused'), null::text; return;
  end if;
  if _kind = 'cancel' and j.state = 'queued' then
    update takopi.job set state = 'done', result = takopi.failure(e, 'interrupted', 'interrupted'), result_seq = takopi.last_seq(j.attempts), done = clock_timestamp(), blobs = null where pos = j.pos;
    update takopi.control set state = 'refused' where job = _job and state = 'new';
    if exists (select 1 from takopi.session s where s.sid = j.sid and s.worker is null) then perform takopi.leave(j.sid); end if;
    return query select 'taken', null::text; return;
  end if;
  insert into takopi.control (id, job, kind, body) values (_id, _job, _kind, _body) on conflict (id) do nothing;
  return query select c.state, j.worker from takopi.control c where c.id = _id;
end $$;

create function takopi.submitter_beat(_id text, _ttl interval) returns void language sql as $$
  insert into takopi.submitter (id, lease_until) values (_id, clock_timestamp() + _ttl)
    on conflict (id) do update set lease_until = excluded.lease_until where submitter.owner = session_user
$$;

-- A worker comes; those that were on its machine before are gone. Refused while another one of that name lives: they would take each
-- other's sessions.
create function takopi.register(_id text, _machine text, _instance uuid, _offers text[], _versions jsonb, _slots int, _ttl interval) returns void language plpgsql as $$
begin
  -- One at a time of a name.
  perform pg_advisory_xact_lock(hashtextextended(_machine, 7251303));
  if exists (select 1 from takopi.worker w where w.machine = _machine and w.lease_until > clock_timestamp() and (w.instance <> _instance or w.owner <> session_user)) then
    raise exception 'another worker named % serves this fleet: give this one a name of its own, or stop the other one and wait until its lease is over', _machine;
  end if;
  delete from takopi.worker where machine = _machine and id <> _id;
  insert into takopi.worker (id, machine, instance, lease_until, offers, versions, slots) values (_id, _machine, _instance, clock_timestamp() + _ttl, _offers, _versions, _slots)
    on conflict (id) do nothing;
end $$;

-- Up to _n sessions. First those that wait longer than _patience, the longest first, so that nobody starves; then those whose files are on
-- this machine; then those that are at home nowhere. Asked again under the same name (the answer may have been lost), it answers
-- the same: otherwise a worker that lives would hold what it does not know of.
-- Two statements on purpose: a session's row is locked in its newest version, which may name a job that the snapshot of the same
-- statement does not have; the session would be held for nothing.
create function takopi.claim(_worker text, _claim text, _n int, _patience interval)
  returns table (job text, sid uuid, token bigint, attempts int, submitter text, engine text, value text, place text, home text, gen bigint, lost text, spec jsonb, blobs bytea[])
  language plpgsql as $$
#variable_conflict use_column
declare w takopi.worker; p record; n int := _n; k int;
begin
  -- One claim of a worker at a time. The answer to one may have been cut off, and the same asked again, before the first was committed:
  -- the second would not see what the first took, and take more.
  perform pg_advisory_xact_lock(hashtextextended(_worker, 7251304));
  -- Held until the commit: nobody can bury this worker between this look and the claim's commit.
  select * into w from takopi.worker where id = _worker and owner = session_user and lease_until > clock_timestamp() for key share;
  if not found then return; end if;
  if not w.draining and not exists (select 1 from takopi.session s where s.worker = _worker and s.claim = _claim) then
    for p in select o.id, coalesce((w.versions->>o.engine)::bigint, 0) as version from takopi.pool o where o.needs <@ w.offers
        order by (select s.head from takopi.session s where s.pool = o.id and s.head is not null order by s.head limit 1) nulls last loop
      exit when n <= 0;
      with free as (select s.sid from takopi.session s
        where s.pool = p.id and s.head is not null and s.ready_at <= clock_timestamp() - _patience and s.min_version <= p.version and (s.stays is null or s.home = w.machine)
        order by s.head limit n for update of s skip locked)
      update takopi.session s set worker = _worker, token = s.token + 1, running = s.head, head = null, ready_at = null, claim = _claim from free where s.sid = free.sid;
      get diagnostics k = row_count; n := n - k; exit when n <= 0;
      with free as (select s.sid from takopi.session s
        where s.home = w.machine and s.pool = p.id and s.head is not null and s.min_version <= p.version
        order by s.head limit n for update of s skip locked)
      update takopi.session s set worker = _worker, token = s.token + 1, running = s.head, head = null, ready_at = null, claim = _claim from free where s.sid = free.sid;
      get diagnostics k = row_count; n := n - k; exit when n <= 0;
      with free as (select s.sid from takopi.session s
        where s.pool = p.id and s.head is not null and s.min_version <= p.version and s.stays is null
          and (s.home is null or not exists (select 1 from takopi.worker o where o.machine = s.home and o.lease_until > clock_timestamp() and not o.draining))
        order by s.head limit n for update of s skip locked)
      update takopi.session s set worker = _worker, token = s.token + 1, running = s.head, head = null, ready_at = null, claim = _claim from free where s.sid = free.sid;
      get diagnostics k = row_count; n := n - k;
    end loop;
  end if;
  return query
    with mine as (update takopi.job j set state = 'running', token = s.token, worker = _worker, started = coalesce(j.started, clock_timestamp()),
        attempts = j.attempts + (j.state = 'queued')::int
      from takopi.session s where s.worker = _worker and s.claim = _claim and j.pos = s.running
      returning j.id, j.pos, s.sid, s.token, j.attempts, j.submitter, s.engine, s.value, s.place, s.home, s.gen, j.lost, j.spec, j.blobs)
    select m.id, m.sid, m.token, m.attempts, m.submitter, m.engine, m.value, m.place, m.home, m.gen, m.lost, m.spec, m.blobs from mine m order by m.pos;
end $$;

-- Keeps the lease and answers all that the worker holds; null if the lease is over: the worker is dead and must stop all it does.
create function takopi.beat(_worker text, _ttl interval, _busy int, _draining boolean, _steady interval) returns jsonb language plpgsql as $$
begin
  update takopi.worker set lease_until = clock_timestamp() + _ttl, busy = _busy, draining = _draining, beaten = clock_timestamp(),
    steady = case when beaten < clock_timestamp() - _steady then clock_timestamp() else steady end where id = _worker and owner = session_user and lease_until > clock_timestamp();
  if not found then return null; end if;
  return (select coalesce(jsonb_agg(jsonb_build_object('job', j.id, 'token', s.token)), '[]') from takopi.session s join takopi.job j on j.pos = s.running where s.worker = _worker);
end $$;

-- The engine confirmed the session's id. In the caller's name only as long as the token holds: ok, fenced, or taken (another session has it).
create function takopi.opened(_worker text, _job text, _token bigint, _value text) returns text language plpgsql as $$
declare s uuid; e text; o uuid;
begin
  select t.sid, t.engine into s, e from takopi.session t join takopi.job j on j.sid = t.sid and j.pos = t.running
    where j.id = _job and t.worker = _worker and t.token = _token and takopi.is_own(_worker) for update of t;
  if not found then return 'fenced'; end if;
  insert into takopi.name (engine, value, sid) values (e, _value, s) on conflict do nothing;
  select n.sid into o from takopi.name n where n.engine = e and n.value = _value;
  if o <> s then return 'taken'; end if;
  update takopi.session t set value = _value where t.sid = s and t.value is distinct from _value;
  return 'ok';
end $$;

-- Writes events of jobs that the worker holds under these tokens. Answers those that it does not hold any more.
create function takopi.events(_worker text, _jobs text[], _tokens bigint[], _event_jobs text[], _seqs bigint[], _bodies jsonb[]) returns setof text language plpgsql as $$
declare held text[];
begin
  -- Half a second of events may be lost with the server; the result carries the whole answer.
  perform set_config('synchronous_commit', 'off', true);
  held := array(select j.id from unnest(_jobs, _tokens) as u (id, token) join takopi.job j on j.id = u.id join takopi.session s on s.sid = j.sid
    where s.worker = _worker and s.token = u.token and s.running = j.pos and takopi.is_own(_worker));
  insert into takopi.event (job, seq, body) select e.job, e.seq, e.body from unnest(_event_jobs, _seqs, _bodies) as e (job, seq, body) where e.job = any (held)
    on conflict do nothing;
  return query select u from unnest(_jobs) u where u <> all (held);
end $$;

-- The end of a job, if the token still holds: result, files, and the session is free. All or nothing. False if it was fenced. Asked again, the same.
-- A job that was refused before its engine began has no home: where the session's files are, which generation they have and whether
-- they can leave stays as it was. Otherwise a session that cannot leave its machine could.
create function takopi.complete(_worker text, _job text, _token bigint, _result jsonb, _home text, _version bigint, _stays text, _paths text[], _starts bigint[], _pieces bytea[])
  returns boolean language plpgsql as $$
declare j takopi.job;
begin
  select * into j from takopi.job where id = _job;
  if not found then return false; end if;
  perform 1 from takopi.session s where s.sid = j.sid and s.token = _token and s.worker = _worker and s.running = j.pos and takopi.is_own(_worker) for update;
  if not found then
    return exists (select 1 from takopi.job d where d.id = _job and d.token = _token and d.worker = _worker and d.state = 'done');
  end if;
  update takopi.job d set state = 'done', result = _result, result_seq = takopi.last_seq(d.attempts), done = clock_timestamp(), blobs = null
    where d.pos = j.pos and d.token = _token and d.state = 'running';
  if not found then return false; end if;
  delete from takopi.file f where f.sid = j.sid and f.path in (select u.path from unnest(_paths, _starts) as u (path, start) where u.start = 0);
  insert into takopi.file (sid, path, start, data, token) select j.sid, u.path, u.start, u.data, _token from unnest(_paths, _starts, _pieces) as u (path, start, data);
  update takopi.control c set state = 'refused' where c.job = _job and c.state = 'new';
  update takopi.session s set last_used = clock_timestamp() where s.sid = j.sid;
  if _home is not null then
    update takopi.session s set home = _home, gen = _token, min_version = greatest(s.min_version, _version), stays = _stays where s.sid = j.sid;
  end if;
  perform takopi.leave(j.sid);
  return true;
end $$;

-- A worker gives a job back, which keeps its place; if its turn was begun, that is a loss. False if it was fenced.
create function takopi.hand_back(_worker text, _job text, _token bigint, _begun boolean, _max_attempts int) returns boolean language plpgsql as $$
declare s takopi.session;
begin
  select t.* into s from takopi.session t join takopi.job j on j.sid = t.sid and j.pos = t.running
    where j.id = _job and t.token = _token and t.worker = _worker and takopi.is_own(_worker) for update of t;
  if not found then return false; end if;
  perform takopi.give_up(s.running, s.engine, _worker, _begun, _max_attempts);
  perform takopi.leave(s.sid);
  return true;
end $$;

-- What the submitters of the worker's jobs want and was not settled yet.
create function takopi.controls(_worker text) returns table (id text, job text, token bigint, kind text, body jsonb) language sql stable as $$
  select c.id, c.job, s.token, c.kind, c.body from takopi.session s join takopi.job j on j.pos = s.running join takopi.control c on c.job = j.id and c.state = 'new'
    where s.worker = _worker and takopi.is_own(_worker) order by c.pos
$$;

create function takopi.settle(_worker text, _id text, _taken boolean) returns void language sql as $$
  update takopi.control c set state = case when _taken then 'taken' else 'refused' end
    from takopi.job j join takopi.session s on s.sid = j.sid and s.running = j.pos where c.id = _id and c.state = 'new' and j.id = c.job and s.worker = _worker and takopi.is_own(_worker)
$$;

create function takopi.files(_worker text, _sid uuid) returns table (path text, start bigint, data bytea) language sql stable as $$
  select f.path, f.start, f.data from takopi.file f join takopi.session s on s.sid = f.sid where f.sid = _sid and s.worker = _worker and takopi.is_own(_worker) order by f.path, f.start
$$;

-- Whatever dead workers held goes back to the head of its line, or ends as lost. Step by step, so that each looks at what the one before locked.
create function takopi.reap(_max_attempts int, _steady interval, _grace interval) returns jsonb language plpgsql as $$
declare r record; s takopi.session; j takopi.job; over boolean; again int := 0; ended jsonb := '[]'; c record;
begin
  delete from takopi.worker where id in (select id from takopi.worker where lease_until < clock_timestamp() for update skip locked);
  for r in select t.sid from takopi.session t where t.worker is not null and not exists (select 1 from takopi.worker w where w.id = t.worker) order by t.sid for update of t skip locked loop
    -- Looked at again: since this statement began, a worker that it cannot see may have come and taken the session.
    select * into s from takopi.session t where t.sid = r.sid;
    continue when s.worker is null or exists (select 1 from takopi.worker w where w.id = s.worker);
    select * into j from takopi.job q where q.pos = s.running;
    over := takopi.give_up(s.running, s.engine, s.worker, true, _max_attempts);
    if over then
      ended := ended || jsonb_build_object('job', j.id, 'submitter', j.submitter);
    elsif not over then
      again := again + 1;
    end if;
    perform takopi.leave(r.sid);
  end loop;
  -- Those whose submitter is gone, if they are not to go on without it. It could not be heard while the database was away: a worker has to
  -- have been heard for as long.
  for c in select q.id, q.sid, q.state, q.pos, q.attempts from takopi.job q join takopi.submitter b on b.id = q.submitter
      where q.state <> 'done' and q.on_gone = 'cancel' and b.lease_until < clock_timestamp()
        and exists (select 1 from takopi.worker w where w.beaten > clock_timestamp() - _steady and w.steady < clock_timestamp() - _grace)
      order by q.sid limit 100 loop
    select * into s from takopi.session t where t.sid = c.sid for update skip locked;
    continue when not found;
    select * into j from takopi.job q where q.pos = c.pos for update;
    if j.state = 'queued' then
      update takopi.job q set state = 'done', result = takopi.failure(s.engine, 'interrupted', 'interrupted: its submitter is gone'), result_seq = takopi.last_seq(q.attempts), done = clock_timestamp(), blobs = null where q.pos = j.pos;
      if s.worker is null then perform takopi.leave(c.sid); end if;
    elsif j.state = 'running' then
      insert into takopi.control (id, job, kind, body) values ('gone:' || j.id, j.id, 'cancel', '{}') on conflict do nothing;
    end if;
  end loop;
  delete from takopi.submitter b where b.lease_until < clock_timestamp() - interval '1 day' and not exists (select 1 from takopi.job q where q.submitter = b.id and q.state <> 'done');
  return jsonb_build_object('again', again, 'ended', ended);
end $$;

-- Brings a session that was made outside the fleet into it. False if it is there already.
create function takopi.import(_sid uuid, _engine text, _value text, _place text, _machine text, _version bigint, _stays text, _paths text[], _pieces bytea[]) returns boolean language plpgsql as $$
begin
  insert into takopi.name (engine, value, sid) values (_engine, _value, _sid) on conflict do nothing;
  if not found then return false; end if;
  insert into takopi.session (sid, engine, value, place, pool, home, min_version, stays) values (_sid, _engine, _value, _place, takopi.pool_of(_engine, array['engine:' || _engine]), _machine, _version, _stays);
  insert into takopi.file (sid, path, start, data, token) select _sid, u.path, 0, u.data, 0 from unnest(_paths, _pieces) as u (path, data);
  return true;
end $$;

-- Gives up the home of a session: any worker may take it, with the files that are stored. False if there is no such session.
create function takopi.release(_engine text, _value text) returns boolean language plpgsql as $$
begin
  update takopi.session s set home = null, stays = null from takopi.name n
    where n.engine = _engine and n.value = _value and s.sid = n.sid and (s.owner = session_user or takopi.is_admin());
  return found;
end $$;

-- Removes what is over: events after an hour, results after a week, sessions after a month without use. One at a time in the whole fleet,
-- in rounds: `more` says that there is more to remove.
create function takopi.gc(_events interval, _results interval, _sessions interval, _dry boolean) returns jsonb language plpgsql as $$
declare jobs text[]; e bigint; r bigint; s bigint;
begin
  -- What others still need is kept, whoever calls this.
  if not takopi.is_admin() then
    _events := greatest(_events, interval '1 hour'); _results := greatest(_results, interval '7 days'); _sessions := greatest(_sessions, interval '30 days');
  end if;
  if _dry then
    return jsonb_build_object(
      'events', (select count(*) from takopi.event v join takopi.job j on j.id = v.job where j.state = 'done' and j.done < clock_timestamp() - _events),
      'results', (select count(*) from takopi.job j where j.state = 'done' and j.done < clock_timestamp() - _results),
      'sessions', (select count(*) from takopi.session t where t.last_used < clock_timestamp() - _sessions and t.head is null and t.worker is null), 'more', false);
  end if;
  if not pg_try_advisory_xact_lock(7251302) then return jsonb_build_object('events', 0, 'results', 0, 'sessions', 0, 'more', false); end if;
  jobs := array(select j.id from takopi.job j where j.state = 'done' and not j.swept and j.done < clock_timestamp() - _events order by j.done limit 1000);
  with old as (select v.job, v.seq from takopi.event v where v.job = any (jobs) limit 10000)
    delete from takopi.event v using old where v.job = old.job and v.seq = old.seq;
  get diagnostics e = row_count;
  -- They are not looked at again.
  update takopi.job j set swept = true where j.id = any (jobs) and not exists (select 1 from takopi.event v where v.job = j.id);
  with old as (select j.pos, j.id from takopi.job j where j.state = 'done' and j.done < clock_timestamp() - _results order by j.done limit 1000),
    controls as (delete from takopi.control c using old where c.job = old.id), events as (delete from takopi.event v using old where v.job = old.id)
    delete from takopi.job j using old where j.pos = old.pos;
  get diagnostics r = row_count;
  with old as (select t.sid from takopi.session t where t.last_used < clock_timestamp() - _sessions and t.head is null and t.worker is null order by t.last_used limit 1000 for update skip locked),
    names as (delete from takopi.name n using old where n.sid = old.sid), files as (delete from takopi.file f using old where f.sid = old.sid)
    delete from takopi.session t using old where t.sid = old.sid;
  get diagnostics s = row_count;
  return jsonb_build_object('events', e, 'results', r, 'sessions', s, 'more', e = 10000 or cardinality(jobs) = 1000 or r = 1000 or s = 1000);
end $$;

-- Figures and names, no prompts and no answers.
create function takopi.status() returns jsonb language sql stable as $$
  select jsonb_build_object(
    'workers', (select coalesce(jsonb_agg(jsonb_build_object('id', w.id, 'machine', w.machine, 'slots', w.slots, 'busy', w.busy, 'draining', w.draining, 'alive', w.lease_until > clock_timestamp(),
        'offers', to_jsonb(w.offers), 'versions', w.versions, 'up_seconds', extract(epoch from clock_timestamp() - w.since)::bigint,
        'held', (select count(*) from takopi.session s where s.worker = w.id)) order by w.machine), '[]') from takopi.worker w),
    'lines', (select coalesce(jsonb_agg(l), '[]') from (select jsonb_build_object('needs', to_jsonb(p.needs), 'sessions_ready', count(s.sid), 'oldest_seconds', coalesce(extract(epoch from max(clock_timestamp() - s.ready_at)), 0)::bigint,
        'offered', exists (select 1 from takopi.worker w where p.needs <@ w.offers and w.lease_until > clock_timestamp() and not w.draining)) as l
      from takopi.pool p join takopi.session s on s.pool = p.id and s.head is not null group by p.id, p.needs) as lines),
    'queued', (select count(*) from takopi.job where state = 'queued'),
    'running', (select count(*) from takopi.session where worker is not null),
    'sessions', (select count(*) from takopi.session),
    'stranded', (select count(*) from takopi.session s where s.stays is not null and s.head is not null and not exists (select 1 from takopi.worker w where w.machine = s.home and w.lease_until > clock_timestamp())),
    'done_last_minute', (select count(*) from takopi.job where state = 'done' and done > clock_timestamp() - interval '1 minute'),
    'failed_last_minute', (select count(*) from takopi.job where state = 'done' and done > clock_timestamp() - interval '1 minute' and not (result->>'ok')::boolean),
    'now', extract(epoch from clock_timestamp()))
$$;

-- The caller's own jobs, the newest first.
create function takopi.jobs(_max int) returns jsonb language sql stable as $$
  select coalesce(jsonb_agg(l order by pos desc), '[]') from (select j.pos, jsonb_build_object('id', j.id, 'state', j.state, 'engine', s.engine, 'session', s.value, 'worker', j.worker, 'attempts', j.attempts,
      'ok', j.result->'ok', 'reason', j.result->>'reason', 'age_seconds', extract(epoch from clock_timestamp() - j.enqueued)::bigint) as l
    from takopi.job j join takopi.session s on s.sid = j.sid where j.owner = session_user order by j.pos desc limit _max) as mine
$$;
