-- Ids and JSON are text, times are integer microseconds, digests are lower-case hex, but for the ledger's own, which are
-- 32 bytes. A record's body lives once, in
-- ledger.payload; the other tables point at it by ledger index. `org` is organization.key. Ids begin with the time and
-- are unique in the whole store, so that indexes on them grow at one end whichever organizations write.

CREATE TABLE organization (
    key    INTEGER PRIMARY KEY,
    id     TEXT NOT NULL UNIQUE,
    name   TEXT NOT NULL UNIQUE,
    record TEXT NOT NULL
) STRICT;

-- Every organization that was ever created. It follows from no ledger and no row of it is ever removed, so that an
-- organization is missed whose rows are all gone.
CREATE TABLE known_organization (
    id   TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- org: in whose ledger the user was made.
CREATE TABLE user (
    org          INTEGER NOT NULL,
    id           TEXT NOT NULL PRIMARY KEY,
    name         TEXT NOT NULL UNIQUE,
    record       TEXT NOT NULL,
    ledger_index INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE membership (
    org  INTEGER NOT NULL,
    user TEXT NOT NULL,
    role TEXT,  -- none: the membership has ended
    PRIMARY KEY (org, user)
) STRICT, WITHOUT ROWID;

-- frontier: the hashes of the complete subtrees of `size` leaves, largest first. An append reads no node.
CREATE TABLE head (
    org      INTEGER NOT NULL PRIMARY KEY,
    size     INTEGER NOT NULL,
    frontier BLOB NOT NULL
) STRICT;

CREATE TABLE ledger (
    org            INTEGER NOT NULL,
    idx            INTEGER NOT NULL,
    kind           TEXT NOT NULL,
    at             INTEGER NOT NULL,
    actor          TEXT NOT NULL,
    payload_hash   BLOB NOT NULL,
    leaf_hash      BLOB NOT NULL,
    salt           BLOB NOT NULL,
    payload        TEXT NOT NULL,
    PRIMARY KEY (org, idx)
) STRICT;

-- Entries about the roles of users: few of a ledger.
CREATE INDEX ledger_member ON ledger (org, idx, kind) WHERE kind IN ('member_added', 'member_removed');

-- Entries that correct a clock which was ahead: earlier entries of a later time count as recorded at `at`.
CREATE TABLE clock_correction (
    org          INTEGER NOT NULL,
    ledger_index INTEGER NOT NULL,
    at           INTEGER NOT NULL,
    PRIMARY KEY (org, ledger_index)
) STRICT, WITHOUT ROWID;

-- Levels 4, 8, 12, ... only.
CREATE TABLE node (
    org   INTEGER NOT NULL,
    level INTEGER NOT NULL,
    idx   INTEGER NOT NULL,
    hash  BLOB NOT NULL,
    PRIMARY KEY (org, level, idx)
) STRICT, WITHOUT ROWID;

-- Every record that changes, trails aside: its newest fact, and the name that lists show. tags: a JSON object, for flows,
-- repos and controls.
CREATE TABLE record (
    org          INTEGER NOT NULL,
    kind         TEXT NOT NULL,
    id           TEXT NOT NULL,
    name         TEXT NOT NULL,
    ledger_index INTEGER NOT NULL,
    archived     INTEGER NOT NULL,
    tags         TEXT NOT NULL,
    PRIMARY KEY (org, kind, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX record_name ON record (org, kind, name);

-- What names lead to. alias: a former name, which another record may claim.
CREATE TABLE name (
    org   INTEGER NOT NULL,
    kind  TEXT NOT NULL,
    name  TEXT NOT NULL,
    id    TEXT NOT NULL,
    alias INTEGER NOT NULL,
    PRIMARY KEY (org, kind, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX name_id ON name (org, kind, id);

-- The tags of records. Each pair of a key and a value is found from the one before it.
CREATE TABLE record_tag (
    org     INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    id      TEXT NOT NULL,
    key     TEXT NOT NULL,
    value   TEXT NOT NULL,
    PRIMARY KEY (org, kind, id, key)
) STRICT;
CREATE INDEX record_tag_pair ON record_tag (org, kind, key, value);

CREATE TABLE api_key (
    org        INTEGER NOT NULL,
    id         TEXT NOT NULL PRIMARY KEY,
    owner      TEXT NOT NULL,  -- the JSON of the actor
    owner_id   TEXT NOT NULL,
    hash       TEXT UNIQUE,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX api_key_owner ON api_key (owner_id, created_at);

-- ordinal, flow_ordinal: its number among those of the organization and of the flow, from 1 on and without gaps. So the last
-- one's is how many there are, and a page of a list is found without passing over the others. Artifacts have them too.
CREATE TABLE trail (
    org          INTEGER NOT NULL,
    id           TEXT NOT NULL PRIMARY KEY,
    flow         TEXT NOT NULL,
    name         TEXT NOT NULL,
    begun        INTEGER NOT NULL,
    ledger_index INTEGER NOT NULL,
    ordinal      INTEGER NOT NULL,
    flow_ordinal INTEGER NOT NULL,
    UNIQUE (flow, name)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX trail_flow ON trail (flow, flow_ordinal);
CREATE UNIQUE INDEX trail_org ON trail (org, ordinal);

-- The updates of trails; their beginnings are in trail.begun.
CREATE TABLE trail_entry (
    org          INTEGER NOT NULL,
    trail        TEXT NOT NULL,
    ledger_index INTEGER NOT NULL,
    PRIMARY KEY (trail, ledger_index)
) STRICT, WITHOUT ROWID;

-- template: the JSON of what a report without a trail is judged by.
CREATE TABLE artifact (
    org          INTEGER NOT NULL,
    id           TEXT NOT NULL PRIMARY KEY,
    flow         TEXT NOT NULL,
    trail        TEXT,
    fingerprint  TEXT NOT NULL,
    name         TEXT NOT NULL,
    commit_sha   TEXT NOT NULL,
    branch       TEXT,
    repo         TEXT,
    committed_at INTEGER,
    template     TEXT,
    at           INTEGER NOT NULL,
    ledger_index INTEGER NOT NULL,
    ordinal      INTEGER NOT NULL,
    flow_ordinal INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX artifact_org ON artifact (org, ordinal);
CREATE INDEX artifact_fingerprint ON artifact (org, fingerprint, flow, trail IS NOT NULL, ledger_index);
CREATE INDEX artifact_named ON artifact (org, fingerprint, flow, trail IS NOT NULL, ledger_index) WHERE name <> '';
CREATE INDEX artifact_given ON artifact (org, fingerprint, flow, name, ledger_index);
CREATE UNIQUE INDEX artifact_flow ON artifact (flow, flow_ordinal);
CREATE INDEX artifact_trail ON artifact (trail, ledger_index) WHERE trail IS NOT NULL;
CREATE INDEX artifact_content ON artifact (trail, fingerprint, ledger_index) WHERE trail IS NOT NULL;
CREATE INDEX artifact_commit ON artifact (flow, commit_sha, ledger_index);
-- Commits of any flow: of what tells one.
CREATE INDEX artifact_built ON artifact (org, commit_sha, fingerprint, flow, ledger_index) WHERE commit_sha <> '';
CREATE INDEX artifact_repo ON artifact (repo, ledger_index) WHERE repo IS NOT NULL;

-- The first report of each artifact. ordinal, repo_ordinal: its number among those of the organization and of the repo. at:
-- the time of its entry, which never goes back in a ledger, so that builds are numbered by time.
CREATE TABLE build (
    org          INTEGER NOT NULL,
    ordinal      INTEGER NOT NULL,
    id           TEXT NOT NULL,
    repo         TEXT,
    repo_ordinal INTEGER,
    at           INTEGER NOT NULL,
    ledger_index INTEGER NOT NULL,
    PRIMARY KEY (org, ordinal)
) STRICT, WITHOUT ROWID;
-- With the time, so that the ends of a window are found by the index alone.
CREATE INDEX build_repo ON build (org, repo, repo_ordinal, at) WHERE repo IS NOT NULL;

-- binding: the JSON of what the attestation is about. recorded_at: the time of its entry. commit_sha: the commit that it names itself. override_info: of an override,
-- who overrides an attestation, and why. control_ordinal: its
-- number among the decisions about that control. decided_by: the name of who decided. No index on a digest here: an index on random keys would cost more writes
-- than the ledger itself.
CREATE TABLE attestation (
    org          INTEGER NOT NULL,
    id           TEXT NOT NULL PRIMARY KEY,
    flow         TEXT NOT NULL,
    trail        TEXT NOT NULL,
    name         TEXT NOT NULL,
    kind         TEXT NOT NULL,
    is_compliant INTEGER NOT NULL,
    override_info TEXT,
    control      TEXT,
    control_version INTEGER,
    decided_by   TEXT,
    binding      TEXT NOT NULL,
    commit_sha   TEXT,
    at           INTEGER NOT NULL,
    recorded_at  INTEGER NOT NULL,
    ledger_index INTEGER NOT NULL,
    flow_ordinal INTEGER NOT NULL,
    control_ordinal INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX attestation_trail ON attestation (trail, name, ledger_index);
CREATE INDEX attestation_newest ON attestation (org, ledger_index);
-- With the time of the entry and the organization, so that the ends of a window are found by the index alone.
CREATE INDEX attestation_flow ON attestation (flow, flow_ordinal, recorded_at, org);
-- Decisions about a control, by its identifier and their numbers, with what they are narrowed by.
CREATE INDEX attestation_control ON attestation (org, control, control_ordinal, is_compliant, at, flow)
    WHERE control IS NOT NULL;

-- The trails in which a trail, an artifact or an attestation names a commit in full: a row for both, so that the many
-- attestations of a trail share one in an index on random keys. flow: the trail's.
CREATE TABLE commit_trail (
    org        INTEGER NOT NULL,
    commit_sha TEXT NOT NULL,
    trail      TEXT NOT NULL,
    flow       TEXT NOT NULL,
    PRIMARY KEY (org, commit_sha, trail)
) STRICT, WITHOUT ROWID;

-- url: of the repo that was named last by what was reported to the flow.
CREATE TABLE flow_repo (
    org  INTEGER NOT NULL,
    flow TEXT NOT NULL,
    url  TEXT NOT NULL,
    PRIMARY KEY (org, flow)
) STRICT, WITHOUT ROWID;

-- namespace: each segment as a JSON string followed by a comma, so that paths compare by whole segments.
CREATE TABLE repo (
    org          INTEGER NOT NULL,
    id           TEXT NOT NULL PRIMARY KEY,
    name         TEXT NOT NULL,
    provider     TEXT,
    external_id  TEXT,
    vcs_instance TEXT,
    namespace    TEXT NOT NULL,
    ledger_index INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX repo_name ON repo (org, name, id);
CREATE INDEX repo_external ON repo (org, external_id, name, id) WHERE external_id IS NOT NULL;

-- events: how many events the environment has with it.
CREATE TABLE snapshot (
    org          INTEGER NOT NULL,
    environment  TEXT NOT NULL,
    compliant    INTEGER NOT NULL,
    idx          INTEGER NOT NULL,
    at           INTEGER NOT NULL,
    ledger_index INTEGER NOT NULL,
    events       INTEGER NOT NULL,
    logical      TEXT,
    PRIMARY KEY (environment, idx)
) STRICT, WITHOUT ROWID;
CREATE INDEX snapshot_entry ON snapshot (environment, ledger_index, idx);

-- Of logical environments: which had a member from an entry on (joined), or no more.
CREATE TABLE environment_member (
    org          INTEGER NOT NULL,
    environment  TEXT NOT NULL,
    ledger_index INTEGER NOT NULL,
    member       TEXT NOT NULL,
    joined       INTEGER NOT NULL,
    PRIMARY KEY (environment, ledger_index, member)
) STRICT, WITHOUT ROWID;
CREATE INDEX environment_member_of ON environment_member (org, member, environment);

-- When environments were last reported on, where that told nothing new too.
CREATE TABLE environment_report (
    org         INTEGER NOT NULL,
    environment TEXT NOT NULL PRIMARY KEY,
    at          INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- An artifact that runs with the same data from one snapshot until before another. from_idx: the first snapshot with these
-- data; since_idx: the first of the run that this is a part of; until_idx: the first without it, or 2^63-1 while it lasts.
-- artifact: the fingerprint, or name: and the SHA-256 of the name where there is no digest. state: the
-- instance's JSON. event, exit_event: the number, among those of the environment, of the event that tells how it came to be
-- so, and of that which tells that it no longer runs.
CREATE TABLE instance (
    org         INTEGER NOT NULL,
    environment TEXT NOT NULL,
    artifact    TEXT NOT NULL,
    exited      INTEGER NOT NULL,
    from_idx    INTEGER NOT NULL,
    since_idx   INTEGER NOT NULL,
    until_idx   INTEGER NOT NULL,
    event       INTEGER,
    exit_event  INTEGER,
    state       TEXT NOT NULL,
    PRIMARY KEY (environment, artifact, from_idx)
) STRICT;
CREATE INDEX instance_until ON instance (environment, until_idx, from_idx);
-- The last of the intervals that make up a run.
CREATE INDEX instance_run ON instance (org, artifact, environment, since_idx)
    WHERE exited OR until_idx = 9223372036854775807;
CREATE INDEX instance_event ON instance (environment, event) WHERE event IS NOT NULL;
CREATE INDEX instance_exit_event ON instance (environment, exit_event) WHERE exit_event IS NOT NULL;
-- What lasts, of however many intervals: of an artifact, in an environment or in any.
CREATE INDEX instance_lasting ON instance (org, artifact, environment) WHERE until_idx = 9223372036854775807;

-- An artifact that began to run; snapshot: the first of the run. report, flow, repo: of its report in one of its flows, one
-- with a repo if there is such; committed_at: when its commit was made. Numbered in the organization, in the environment and among those of the repo.
CREATE TABLE deployment (
    org                 INTEGER NOT NULL,
    ordinal             INTEGER NOT NULL,
    environment         TEXT NOT NULL,
    environment_ordinal INTEGER NOT NULL,
    snapshot            INTEGER NOT NULL,
    artifact            TEXT NOT NULL,
    name                TEXT NOT NULL,
    compliant           INTEGER,
    report              TEXT,
    flow                TEXT,
    repo                TEXT,
    repo_ordinal        INTEGER,
    committed_at        INTEGER,
    at                  INTEGER NOT NULL,
    ledger_index        INTEGER NOT NULL,
    PRIMARY KEY (org, environment, snapshot, artifact)
) STRICT, WITHOUT ROWID;
-- With what they are narrowed by, so that windows are found and counted by the index alone.
CREATE INDEX deployment_org ON deployment (org, ordinal, at, environment, flow);
CREATE INDEX deployment_environment ON deployment (org, environment, environment_ordinal, at, flow);
CREATE INDEX deployment_repo ON deployment (org, repo, repo_ordinal, at, environment) WHERE repo IS NOT NULL;

-- What artifacts that began to run with snapshot since_idx were called in flows: reference is the template's name, empty
-- without one. A row for each flow, where deployment has one for each start: of several flows that tells the one by which the
-- deployment is counted, for good, while here reports that come later count, too, and names are what is found by.
CREATE TABLE run_origin (
    org         INTEGER NOT NULL,
    environment TEXT NOT NULL,
    flow        TEXT NOT NULL,
    reference   TEXT NOT NULL,
    since_idx   INTEGER NOT NULL,
    artifact    TEXT NOT NULL,
    report      TEXT NOT NULL,
    PRIMARY KEY (environment, flow, reference, since_idx, artifact)
) STRICT, WITHOUT ROWID;
-- For what has no name.
CREATE INDEX run_origin_flow ON run_origin (environment, flow, since_idx, artifact, reference);

-- Versions of policies, attestation types and controls; id: that record's.
CREATE TABLE version (
    org          INTEGER NOT NULL,
    id           TEXT NOT NULL,
    number       INTEGER NOT NULL,
    ledger_index INTEGER NOT NULL,
    PRIMARY KEY (id, number)
) STRICT, WITHOUT ROWID;

-- Allowlist entries and their withdrawals: the newest row of an environment and fingerprint counts. ends_at: when it expires,
-- or was withdrawn.
CREATE TABLE allowance (
    org          INTEGER NOT NULL,
    environment  TEXT NOT NULL,
    fingerprint  TEXT NOT NULL,
    ledger_index INTEGER NOT NULL,
    ends_at      INTEGER,
    withdrawn    INTEGER NOT NULL,
    PRIMARY KEY (org, environment, fingerprint, ledger_index)
) STRICT, WITHOUT ROWID;

CREATE INDEX allowance_end ON allowance (ends_at) WHERE ends_at IS NOT NULL;

-- The newest entry of each environment and fingerprint. ends_at: the greatest number for one that does not expire, the least
-- for one that was withdrawn, so that those in force are a range.
CREATE TABLE allowed (
    org          INTEGER NOT NULL,
    environment  TEXT NOT NULL,
    fingerprint  TEXT NOT NULL,
    ledger_index INTEGER NOT NULL,
    ends_at      INTEGER NOT NULL,
    PRIMARY KEY (org, environment, fingerprint)
) STRICT, WITHOUT ROWID;

CREATE INDEX allowed_end ON allowed (org, environment, ends_at);

-- Texts that records refer to, by digest: the newest entry that keeps each.
CREATE TABLE interned_text (
    org          INTEGER NOT NULL,
    sha256       TEXT NOT NULL,
    ledger_index INTEGER NOT NULL,
    PRIMARY KEY (org, sha256)
) STRICT, WITHOUT ROWID;

-- Contents that records name: they are kept beside the ledger.
CREATE TABLE attachment (
    org    INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    size   INTEGER NOT NULL,
    PRIMARY KEY (org, sha256)
) STRICT, WITHOUT ROWID;

-- Contents that no record names yet, since when they are kept, and since when they are being removed. The row is
-- there before the first chunk is.
CREATE TABLE attachment_pending (
    org         INTEGER NOT NULL,
    sha256      TEXT NOT NULL,
    kept_at     INTEGER NOT NULL,
    removing_at INTEGER,
    PRIMARY KEY (org, sha256)
) STRICT, WITHOUT ROWID;

-- The place outside of the database where the content of attachments is, at most one, by the id in its marker.
CREATE TABLE attachment_place (
    number    INTEGER PRIMARY KEY CHECK (number = 1),
    id        TEXT NOT NULL,
    is_marked INTEGER NOT NULL
) STRICT;

-- A blob exists once its row is here; chunks without one belong to a blob that is still coming, or never came.
CREATE TABLE blob (
    org    INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    size   INTEGER NOT NULL,
    PRIMARY KEY (org, sha256)
) STRICT, WITHOUT ROWID;

-- seq: from 0, without gaps.
CREATE TABLE blob_chunk (
    org    INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    seq    INTEGER NOT NULL,
    data   BLOB NOT NULL,
    PRIMARY KEY (org, sha256, seq)
) STRICT;

-- Who does which background work, and how far each consumer has read each ledger: beside the ledgers, never made again
-- from them.
CREATE TABLE lease (
    name       TEXT NOT NULL PRIMARY KEY,
    holder     TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE cursor (
    org      INTEGER NOT NULL,
    consumer TEXT NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (org, consumer)
) STRICT, WITHOUT ROWID;

-- The last signed checkpoint of each ledger. note: the signed note.
CREATE TABLE checkpoint (
    org  INTEGER NOT NULL PRIMARY KEY,
    note TEXT NOT NULL
) STRICT;

-- The URLs of notifications, which are secret and therefore in no ledger. content: JSON, see evidence_core::actions::StoredUrl.
CREATE TABLE secret_url (
    org     INTEGER NOT NULL,
    id      TEXT NOT NULL,
    content TEXT NOT NULL,
    PRIMARY KEY (org, id)
) STRICT, WITHOUT ROWID;

-- How far the deliveries of each target of actions are, as JSON, and from when on the next attempt may be made, where
-- something waits: beside the ledgers, as cursors are.
CREATE TABLE delivery (
    org      INTEGER NOT NULL,
    target   TEXT NOT NULL,
    mail     INTEGER NOT NULL,
    due_at   INTEGER,
    state    TEXT NOT NULL,
    revision INTEGER NOT NULL,
    PRIMARY KEY (org, target)
) STRICT, WITHOUT ROWID;
CREATE INDEX delivery_due ON delivery (mail, org, due_at, target) WHERE due_at IS NOT NULL;
