-- Only workers reap. What a lost worker held can be cancelled although none is left.

-- Whether a worker is gone for good: it is not there any more, or its lease is over, and stays so until the end of the transaction. One
-- whose row is in use at this moment may be renewing its lease.
create function takopi.is_lost(_worker text) returns boolean language plpgsql as $$
begin
  perform 1 from takopi.worker w where w.id = _worker and w.lease_until <= clock_timestamp() for update skip locked;
  return found or not exists (select 1 from takopi.worker w where w.id = _worker);
end $$;

-- Cancels, answers or steers a job. The state it is in now, and who must be told: unknown, refused, taken, new.
create or replace function takopi.control(_id text, _job text, _kind text, _body jsonb) returns table (state text, worker text) language plpgsql as $$
#variable_conflict use_column
declare j takopi.job; s takopi.session; over boolean := false;
begin
  select * into j from takopi.job where id = _job and (owner = session_user or takopi.is_admin());
  if not found then return query select 'unknown', null::text; return; end if;
  select * into s from takopi.session t where t.sid = j.sid for update;
  select * into j from takopi.job where id = _job for update;
  if j.state = 'done' then
    return query select coalesce((select c.state from takopi.control c where c.id = _id), 'refused'), null::text; return;
  end if;
  if _kind = 'cancel' then
    -- A worker that is lost cannot come back to the job: it is not in the session any more, and what it writes is refused.
    if j.state = 'queued' then over := true; else over := takopi.is_lost(s.worker); end if;
  end if;
  if over then
    update takopi.job q set state = 'done', lost = case when q.state = 'running' then q.worker else q.lost end, worker = null, token = null,
      result = takopi.failure(s.engine, 'interrupted', 'interrupted'), result_seq = takopi.last_seq(q.attempts), done = clock_timestamp(), blobs = null where q.pos = j.pos;
    update takopi.control c set state = 'refused' where c.job = _job and c.state = 'new';
    if s.worker is null or j.state = 'running' then perform takopi.leave(j.sid); end if;
    return query select 'taken', null::text; return;
  end if;
  insert into takopi.control (id, job, kind, body) values (_id, _job, _kind, _body) on conflict (id) do nothing;
  return query select c.state, j.worker from takopi.control c where c.id = _id;
end $$;

do $$
begin
  alter function takopi.is_lost(text) security definer set search_path = pg_catalog, pg_temp;
  revoke all on function takopi.is_lost(text) from public;
  -- Replacing a function resets what 0003 set; who may call it stays.
  alter function takopi.control(text, text, text, jsonb) security definer set search_path = pg_catalog, pg_temp;
end $$;
