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

do $$
declare f record; r text;
begin
  for f in select p.oid::regprocedure as name, p.proname from pg_proc p join pg_namespace n on n.oid = p.pronamespace
      where n.nspname = 'takopi' and p.proname in ('schema_version', 'is_admin', 'overview', 'jobs_of_all') loop
    execute format('alter function %s security definer set search_path = pg_catalog, pg_temp', f.name);
    execute format('revoke all on function %s from public', f.name);
    foreach r in array array['takopi_submit', 'takopi_work'] loop
      if f.proname in ('schema_version', 'is_admin', 'overview') and exists (select 1 from pg_roles where rolname = r) then execute format('grant execute on function %s to %I', f.name, r); end if;
    end loop;
  end loop;
end $$;
