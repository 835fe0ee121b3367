-- Who may do what. Everything runs in the name of the schema's owner; nobody else may touch the tables.
do $$
declare f record;
begin
  begin
    if not exists (select 1 from pg_roles where rolname = 'takopi_submit') then create role takopi_submit nologin; end if;
    if not exists (select 1 from pg_roles where rolname = 'takopi_work') then create role takopi_work nologin; end if;
  exception
    when insufficient_privilege then raise notice 'cannot create the roles takopi_submit and takopi_work: only the owner of the schema can use the fleet';
    -- Another database of this server is being initialized at the same moment.
    when unique_violation or duplicate_object then null;
  end;
  for f in select p.oid::regprocedure as name, p.proname from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = 'takopi' loop
    execute format('alter function %s security definer set search_path = pg_catalog, pg_temp', f.name);
    execute format('revoke all on function %s from public', f.name);
    if f.proname in ('protocol', 'enqueue', 'follow', 'waiting', 'control', 'submitter_beat', 'import', 'release', 'status', 'jobs') and exists (select 1 from pg_roles where rolname = 'takopi_submit') then
      execute format('grant execute on function %s to takopi_submit', f.name);
    end if;
    if f.proname in ('protocol', 'register', 'claim', 'beat', 'opened', 'events', 'complete', 'hand_back', 'controls', 'settle', 'files', 'reap', 'gc', 'status') and exists (select 1 from pg_roles where rolname = 'takopi_work') then
      execute format('grant execute on function %s to takopi_work', f.name);
    end if;
  end loop;
  if exists (select 1 from pg_roles where rolname = 'takopi_submit') then grant usage on schema takopi to takopi_submit; end if;
  if exists (select 1 from pg_roles where rolname = 'takopi_work') then grant usage on schema takopi to takopi_work; end if;
end $$;
