-- The name of a request belongs to its job: nobody can take that of a request to another job.
alter table takopi.control drop constraint control_pkey, add primary key (job, id);
drop index takopi.control_job;

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
    return query select coalesce((select c.state from takopi.control c where c.job = _job and c.id = _id), 'refused'), null::text; return;
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
  insert into takopi.control (id, job, kind, body) values (_id, _job, _kind, _body) on conflict (job, id) do nothing;
  return query select c.state, j.worker from takopi.control c where c.job = _job and c.id = _id;
end $$;

-- Replacing a function resets what 0003 set; who may call it stays.
alter function takopi.control(text, text, text, jsonb) security definer set search_path = pg_catalog, pg_temp;
