-- What people who look after the fleet need: one picture of it, and power over the jobs of others for the owner of the schema.

create function takopi.schema_version() returns int language sql stable as $$ select coalesce(max(version), 0) from takopi.migration $$;

-- Whether the caller may do what the owner of the schema may.
create function takopi.is_admin() returns boolean language sql stable as $$
  select pg_has_role(session_user, n.nspowner, 'member') from pg_namespace n where n.nspname = 'takopi'
$$;

-- The figures of status(), and what a picture of the fleet shows beside them. Names and numbers, no prompts and no answers.
create function takopi.overview() returns jsonb language sql stable as $$
  select jsonb_build_object('status', takopi.status(),
    'leases', (select coalesce(jsonb_agg(jsonb_build_object('worker', w.id, 'seconds_left', extract(epoch from w.lease_until - clock_timestamp()))), '[]') from takopi.worker w),
    -- How many jobs ended in each ten seconds of the last five minutes, the oldest first.
    'ended', (select jsonb_agg(coalesce(d.n, 0) order by b.bin desc) from generate_series(0, 29) as b (bin)
      left join (select floor(extract(epoch from clock_timestamp() - j.done) / 10)::int as bin, count(*) as n from takopi.job j
        where j.state = 'done' and j.done > clock_timestamp() - interval '5 minutes' group by 1) as d on d.bin = b.bin),
    'submitters', (select count(*) from takopi.submitter s where s.lease_until > clock_timestamp()),
    'file_bytes', pg_total_relation_size('takopi.file'),
    'all_bytes', (select sum(pg_total_relation_size(c.oid))::bigint from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = 'takopi' and c.relkind = 'r'))
$$;

-- Everybody's newest jobs, for the owner of the schema.
create function takopi.jobs_of_all(_max int) returns jsonb language sql stable as $$
  select coalesce(jsonb_agg(l order by pos desc), '[]') from (select j.pos, jsonb_build_object('id', j.id, 'owner', j.owner, 'state', j.state, 'engine', s.engine, 'session', s.value, 'worker', j.worker,
      'attempts', j.attempts, 'ok', j.result->'ok', 'reason', j.result->>'reason', 'age_seconds', extract(epoch from clock_timestamp() - j.enqueued)::bigint) as l
    from takopi.job j join takopi.session s on s.sid = j.sid order by j.pos desc limit _max) as every
$$;

-- As before, but the owner of the schema may control every job.
create or replace function takopi.control(_id text, _job text, _kind text, _body jsonb) returns table (state text, worker text) language plpgsql as $$
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

-- As before, but the owner of the schema may release every session.
create or replace function takopi.release(_engine text, _value text) returns boolean language plpgsql as $$
begin
  update takopi.session s set home = null, stays = null from takopi.name n
    where n.engine = _engine and n.value = _value and s.sid = n.sid and (s.owner = session_user or takopi.is_admin());
  return found;
end $$;

do $$
declare f record; r text;
begin
  for f in select p.oid::regprocedure as name, p.proname from pg_proc p join pg_namespace n on n.oid = p.pronamespace
      where n.nspname = 'takopi' and p.proname in ('schema_version', 'is_admin', 'overview', 'jobs_of_all', 'control', 'release') loop
    execute format('alter function %s security definer set search_path = pg_catalog, pg_temp', f.name);
    execute format('revoke all on function %s from public', f.name);
    foreach r in array array['takopi_submit', 'takopi_work'] loop
      if f.proname in ('schema_version', 'is_admin', 'overview') and exists (select 1 from pg_roles where rolname = r) then execute format('grant execute on function %s to %I', f.name, r); end if;
    end loop;
  end loop;
end $$;
