-- Tables. Nobody reads or writes them directly: the functions of 0002 do, in the name of their owner.

-- A worker holds one lease, and with it every session it is in. Its id is new with every start: it never comes back from the dead.
create table takopi.worker (
  id          text primary key,
  machine     text not null,              -- who has the files; stays the same over restarts
  instance    uuid not null,              -- the installation: tells a restart from another worker of that name
  owner       name not null default session_user,
  lease_until timestamptz not null,
  offers      text[] not null,
  versions    jsonb not null,             -- engine → version as one number
  slots       int not null,
  busy        int not null default 0,
  draining    boolean not null default false,
  since       timestamptz not null default clock_timestamp(),
  beaten      timestamptz not null default clock_timestamp(),  -- when it was heard last
  steady      timestamptz not null default clock_timestamp()   -- since when it is heard all the time
) with (fillfactor = 50);
create index worker_machine on takopi.worker (machine);

-- The distinct sets of what jobs need; few. A worker serves those whose needs it offers.
create table takopi.pool (
  id     int generated always as identity primary key,
  engine text not null,
  needs  text[] not null unique
);

create table takopi.session (
  sid         uuid primary key,
  owner       name not null default session_user,
  engine      text not null,
  value       text,                       -- the engine's id; null until the engine confirmed it
  place       text,
  pool        int not null,               -- of the head, or of the last job
  head        bigint,                     -- position of the job to run next; set exactly while the session is free and has work
  ready_at    timestamptz,                -- since when the head waits
  worker      text,                       -- who is inside
  token       bigint not null default 0,  -- grows with every claim: the fence
  running     bigint,                     -- position of the job that is inside
  claim       text,                       -- the call that took it: the same call again gets the same answer
  home        text,                       -- the machine with the newest copy of its files
  gen         bigint not null default 0,  -- the token of the newest copy
  min_version bigint not null default 0,  -- of the engine: older ones must not open it
  stays       text,                       -- why it cannot leave its home; null if it can
  last_used   timestamptz not null default clock_timestamp()
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
create index session_ready on takopi.session (pool, head) where head is not null;
create index session_home on takopi.session (home, head) where head is not null;
create index session_held on takopi.session (worker) where worker is not null;
create index session_used on takopi.session (last_used);

-- Every name a session was ever known by: a first turn that is run again may get another id from its engine.
create table takopi.name (
  engine text not null,
  value  text not null,
  sid    uuid not null,
  primary key (engine, value)
);
create index name_sid on takopi.name (sid);

create table takopi.job (
  pos        bigint generated always as identity primary key,
  id         text not null unique,        -- the submitter's key
  owner      name not null default session_user,
  sid        uuid not null,
  pool       int not null,
  submitter  text not null,
  state      text not null default 'queued' check (state in ('queued', 'running', 'done')),
  token      bigint,
  worker     text,
  lost       text,                        -- the worker that was lost with it
  attempts   int not null default 0,
  spec       jsonb not null,
  blobs      bytea[],
  on_loss    text not null check (on_loss in ('retry', 'fail')),
  on_gone    text not null check (on_gone in ('cancel', 'continue')),
  result     jsonb,
  result_seq bigint,
  enqueued   timestamptz not null default clock_timestamp(),
  started    timestamptz,
  done       timestamptz,
  swept      boolean not null default false  -- done, and its events are gone
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
create index job_waiting on takopi.job (sid, pos) where state = 'queued';
create index job_open on takopi.job (submitter) where state <> 'done';
create index job_queued_by on takopi.job (owner) where state = 'queued';
create index job_done on takopi.job (done) where state = 'done';
create index job_unswept on takopi.job (done) where state = 'done' and not swept;

-- seq is attempt · 10⁹ + n: what a lost attempt wrote late is never behind what the next one wrote.
create table takopi.event (
  job  text not null,
  seq  bigint not null,
  body jsonb not null,
  primary key (job, seq)
) with (autovacuum_vacuum_scale_factor = 0.02);

create table takopi.control (
  id    text primary key,
  job   text not null,
  kind  text not null check (kind in ('cancel', 'answer', 'steer')),
  body  jsonb not null,
  state text not null default 'new' check (state in ('new', 'taken', 'refused')),
  pos   bigint generated always as identity
);
create index control_new on takopi.control (job) where state = 'new';
create index control_job on takopi.control (job);

-- Pieces of files, in order. A piece that begins at 0 replaces the file.
create table takopi.file (
  sid   uuid not null,
  path  text not null,
  start bigint not null,
  data  bytea not null,
  token bigint not null,
  primary key (sid, path, start)
);

create table takopi.submitter (
  id          text primary key,
  owner       name not null default session_user,
  lease_until timestamptz not null
) with (fillfactor = 50);
