-- A job that was refused before its engine began leaves its session as it is: no home is given then, and where the files are, which
-- generation they have and whether they can leave stays as it was. Otherwise a session that cannot leave its machine could.
create or replace function takopi.complete(_worker text, _job text, _token bigint, _result jsonb, _home text, _version bigint, _stays text, _paths text[], _starts bigint[], _pieces bytea[])
  returns boolean language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare j takopi.job;
begin
  select * into j from takopi.job where id = _job;
  if not found then return false; end if;
  perform 1 from takopi.session s where s.sid = j.sid and s.token = _token and s.worker = _worker and s.running = j.pos for update;
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
