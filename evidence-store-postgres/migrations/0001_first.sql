-- Ids and JSON are text, but for some ids (see below), times are integer microseconds, digests are lower-case hex, but for the ledger's own, which are
-- 32 bytes. A record's body lives once, in
-- ledger.payload; the other tables point at it by ledger index. `org` is the bytes of the organization's id: every primary
-- key and every index begins with it, so that the tables can be spread over machines by it. Text compares by bytes.
-- `evidence` stands for the schema that the store was given.
--
-- As in the SQLite store, apart from: bytes of the id for organizations (a number would need a counter that all servers
-- share), and bytes for `environment`, `flow` and `report` in the tables that grow with each snapshot (snapshot, instance,
-- deployment, run_origin); indexes led by `org`, booleans, and jsonb where a statement looks inside.

-- key: the bytes of the id, which other tables have as `org`.
CREATE TABLE evidence.organization (
    key    bytea PRIMARY KEY,
    id     text COLLATE "C" NOT NULL UNIQUE,
    name   text COLLATE "C" NOT NULL UNIQUE,
    record text COLLATE "C" NOT NULL
);

-- Every organization that was ever created. It follows from no ledger and no row of it is ever removed, so that an
-- organization is missed whose rows are all gone.
CREATE TABLE evidence.known_organization (
    id   text COLLATE "C" PRIMARY KEY,
    name text COLLATE "C" NOT NULL
);

-- org: in whose ledger the user was made.
CREATE TABLE evidence.user (
    org          bytea NOT NULL,
    id           text COLLATE "C" PRIMARY KEY,
    name         text COLLATE "C" NOT NULL UNIQUE,
    record       text COLLATE "C" NOT NULL,
    ledger_index bigint NOT NULL
);

CREATE TABLE evidence.membership (
    org    bytea NOT NULL,
    "user" text COLLATE "C" NOT NULL,
    role   text COLLATE "C",  -- none: the membership has ended
    PRIMARY KEY (org, "user")
);

-- frontier: the hashes of the complete subtrees of `size` leaves, largest first. An append reads no node. Half of
-- a page stays free, so that the new head, which every group writes, finds room beside the old one.
CREATE TABLE evidence.head (
    org      bytea PRIMARY KEY,
    size     bigint NOT NULL,
    frontier bytea NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE evidence.ledger (
    org            bytea NOT NULL,
    idx            bigint NOT NULL,
    kind           text COLLATE "C" NOT NULL,
    at             bigint NOT NULL,
    actor          text COLLATE "C" NOT NULL,
    payload_hash   bytea NOT NULL,
    leaf_hash      bytea NOT NULL,
    salt           bytea NOT NULL,
    payload        text COLLATE "C" NOT NULL,
    PRIMARY KEY (org, idx)
);

-- Entries about the roles of users: few of a ledger. By an expression, so that no other index serves what asks for them.
CREATE INDEX ledger_member ON evidence.ledger (org, (idx + 0)) WHERE kind IN ('member_added', 'member_removed');

-- Entries that correct a clock which was ahead: earlier entries of a later time count as recorded at `at`.
CREATE TABLE evidence.clock_correction (
    org          bytea NOT NULL,
    ledger_index bigint NOT NULL,
    at           bigint NOT NULL,
    PRIMARY KEY (org, ledger_index)
);

-- Levels 4, 8, 12, ... only.
CREATE TABLE evidence.node (
    org   bytea NOT NULL,
    level integer NOT NULL,
    idx   bigint NOT NULL,
    hash  bytea NOT NULL,
    PRIMARY KEY (org, level, idx)
);

-- Every record that changes, trails aside: its newest fact, and the name that lists show. tags: a JSON object, for flows,
-- repos and controls. In the keys by id the kind comes last, so that they are of no use for a name: where there are no statistics
-- yet, the planner takes any two indexes that begin with the columns asked for to be equally good.
CREATE TABLE evidence.record (
    org          bytea NOT NULL,
    kind         text COLLATE "C" NOT NULL,
    id           text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    ledger_index bigint NOT NULL,
    archived     boolean NOT NULL,
    tags         jsonb NOT NULL,
    PRIMARY KEY (org, id, kind)
);
-- An expression, so that only lists use it, as for trails below.
CREATE INDEX record_name ON evidence.record (org, (kind || ''), name);

-- What names lead to. alias: a former name, which another record may claim.
CREATE TABLE evidence.name (
    org   bytea NOT NULL,
    kind  text COLLATE "C" NOT NULL,
    name  text COLLATE "C" NOT NULL,
    id    text COLLATE "C" NOT NULL,
    alias boolean NOT NULL,
    PRIMARY KEY (org, kind, name)
);
CREATE INDEX name_id ON evidence.name (org, id, kind);

-- The tags of records. Each pair of a key and a value is found from the one before it. A value may be longer than a row of
-- an index: there it is its beginning and its SHA-256. The cast reads backslashes as escapes, hence twice each.
CREATE TABLE evidence.record_tag (
    org     bytea NOT NULL,
    kind    text COLLATE "C" NOT NULL,
    id      text COLLATE "C" NOT NULL,
    key     text COLLATE "C" NOT NULL,
    value   text COLLATE "C" NOT NULL,
    PRIMARY KEY (org, kind, id, key)
);
CREATE INDEX record_tag_pair
    ON evidence.record_tag (org, kind, key, left(value, 128), sha256(replace(value, '\', '\\')::bytea));

CREATE TABLE evidence.api_key (
    org        bytea NOT NULL,
    id         text COLLATE "C" NOT NULL,
    owner      jsonb NOT NULL,  -- the actor
    owner_id   text COLLATE "C" NOT NULL,
    hash       text COLLATE "C" UNIQUE,
    created_at bigint NOT NULL,
    expires_at bigint,
    revoked_at bigint,
    PRIMARY KEY (org, id)
);
CREATE INDEX api_key_owner ON evidence.api_key (org, owner_id, created_at);

-- ordinal, flow_ordinal: its number among those of the organization and of the flow, from 1 on and without gaps. So the last
-- one's is how many there are, and a page of a list is found without passing over the others. Artifacts have them too.
CREATE TABLE evidence.trail (
    org          bytea NOT NULL,
    id           text COLLATE "C" NOT NULL,
    flow         text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    begun        bigint NOT NULL,
    ledger_index bigint NOT NULL,
    ordinal      bigint NOT NULL,
    flow_ordinal bigint NOT NULL,
    PRIMARY KEY (org, id),
    UNIQUE (org, flow, name)
);
-- An expression, so that only lists use it: where there are no statistics yet, the planner takes (org, flow, flow_ordinal)
-- for as good as (org, flow, name) and looks for a name by walking the flow.
CREATE UNIQUE INDEX trail_flow ON evidence.trail (org, (flow || ''), flow_ordinal);
CREATE UNIQUE INDEX trail_org ON evidence.trail (org, ordinal);

-- The updates of trails; their beginnings are in trail.begun.
CREATE TABLE evidence.trail_entry (
    org          bytea NOT NULL,
    trail        text COLLATE "C" NOT NULL,
    ledger_index bigint NOT NULL,
    PRIMARY KEY (org, trail, ledger_index)
);

-- template: the JSON of what a report without a trail is judged by.
CREATE TABLE evidence.artifact (
    org          bytea NOT NULL,
    id           text COLLATE "C" NOT NULL,
    flow         text COLLATE "C" NOT NULL,
    trail        text COLLATE "C",
    fingerprint  text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    commit_sha   text COLLATE "C" NOT NULL,
    branch       text COLLATE "C",
    repo         text COLLATE "C",
    committed_at bigint,
    template     text COLLATE "C",
    at           bigint NOT NULL,
    ledger_index bigint NOT NULL,
    ordinal      bigint NOT NULL,
    flow_ordinal bigint NOT NULL,
    PRIMARY KEY (org, id)
);
CREATE UNIQUE INDEX artifact_org ON evidence.artifact (org, ordinal);
-- With an expression, as for trails; in the order in which the newest of a fingerprint in a flow is looked for.
CREATE INDEX artifact_fingerprint
    ON evidence.artifact (org, fingerprint, (flow || ''), (trail IS NOT NULL), ledger_index);
CREATE INDEX artifact_named
    ON evidence.artifact (org, fingerprint, (flow || ''), (trail IS NOT NULL), ledger_index) WHERE name <> '';
CREATE INDEX artifact_given ON evidence.artifact (org, fingerprint, (flow || ''), name, ledger_index);
CREATE UNIQUE INDEX artifact_flow ON evidence.artifact (org, flow, flow_ordinal);
CREATE INDEX artifact_trail ON evidence.artifact (org, trail, ledger_index) WHERE trail IS NOT NULL;
CREATE INDEX artifact_content ON evidence.artifact (org, trail, fingerprint, ledger_index) WHERE trail IS NOT NULL;
CREATE INDEX artifact_commit ON evidence.artifact (org, flow, commit_sha, ledger_index);
-- Commits of any flow: of what tells one.
CREATE INDEX artifact_built ON evidence.artifact (org, commit_sha, fingerprint, (flow || ''), ledger_index)
    WHERE commit_sha <> '';
CREATE INDEX artifact_repo ON evidence.artifact (org, repo, ledger_index) WHERE repo IS NOT NULL;

-- The first report of each artifact. ordinal, repo_ordinal: its number among those of the organization and of the repo. at:
-- the time of its entry, which never goes back in a ledger, so that builds are numbered by time.
CREATE TABLE evidence.build (
    org          bytea NOT NULL,
    ordinal      bigint NOT NULL,
    id           text COLLATE "C" NOT NULL,
    repo         text COLLATE "C",
    repo_ordinal bigint,
    at           bigint NOT NULL,
    ledger_index bigint NOT NULL,
    PRIMARY KEY (org, ordinal)
);
-- With the time, so that the ends of a window are found by the index alone.
CREATE UNIQUE INDEX build_repo ON evidence.build (org, repo, repo_ordinal) INCLUDE (at) WHERE repo IS NOT NULL;

-- binding: the JSON of what the attestation is about. recorded_at: the time of its entry. commit_sha: the commit that it names itself. override_info: of an override,
-- who overrides an attestation, and why. control_ordinal: its
-- number among the decisions about that control. decided_by: the name of who decided. No index on a digest here: an index on random keys would cost more writes
-- than the ledger itself.
CREATE TABLE evidence.attestation (
    org          bytea NOT NULL,
    id           text COLLATE "C" NOT NULL,
    flow         text COLLATE "C" NOT NULL,
    trail        text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    kind         text COLLATE "C" NOT NULL,
    is_compliant boolean NOT NULL,
    override_info text,
    control      text COLLATE "C",
    control_version bigint,
    decided_by   text COLLATE "C",
    binding      text COLLATE "C" NOT NULL,
    commit_sha   text COLLATE "C",
    at           bigint NOT NULL,
    recorded_at  bigint NOT NULL,
    ledger_index bigint NOT NULL,
    flow_ordinal bigint NOT NULL,
    control_ordinal bigint,
    PRIMARY KEY (org, id)
);
CREATE INDEX attestation_trail ON evidence.attestation (org, trail, name, ledger_index);
CREATE INDEX attestation_newest ON evidence.attestation (org, ledger_index);
-- With the time of the entry, so that the ends of a window are found by the index alone.
CREATE UNIQUE INDEX attestation_flow ON evidence.attestation (org, flow, flow_ordinal) INCLUDE (recorded_at);
-- Decisions about a control, by its identifier and their numbers, with what they are narrowed by.
CREATE UNIQUE INDEX attestation_control
    ON evidence.attestation (org, control, control_ordinal) INCLUDE (is_compliant, at, flow) WHERE control IS NOT NULL;

-- The trails in which a trail, an artifact or an attestation names a commit in full: a row for both, so that the many
-- attestations of a trail share one in an index on random keys. flow: the trail's.
CREATE TABLE evidence.commit_trail (
    org        bytea NOT NULL,
    commit_sha text COLLATE "C" NOT NULL,
    trail      text COLLATE "C" NOT NULL,
    flow       text COLLATE "C" NOT NULL,
    PRIMARY KEY (org, commit_sha, trail)
);

-- url: of the repo that was named last by what was reported to the flow.
CREATE TABLE evidence.flow_repo (
    org  bytea NOT NULL,
    flow text COLLATE "C" NOT NULL,
    url  text COLLATE "C" NOT NULL,
    PRIMARY KEY (org, flow)
);

-- namespace: each segment as a JSON string followed by a comma, so that paths compare by whole segments.
CREATE TABLE evidence.repo (
    org          bytea NOT NULL,
    id           text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    provider     text COLLATE "C",
    external_id  text COLLATE "C",
    vcs_instance text COLLATE "C",
    namespace    text COLLATE "C" NOT NULL,
    ledger_index bigint NOT NULL,
    PRIMARY KEY (org, id)
);
CREATE INDEX repo_name ON evidence.repo (org, name, id);
CREATE INDEX repo_external ON evidence.repo (org, external_id, name, id) WHERE external_id IS NOT NULL;

-- events: how many events the environment has with it.
CREATE TABLE evidence.snapshot (
    org          bytea NOT NULL,
    environment  bytea NOT NULL,
    compliant    boolean NOT NULL,
    idx          bigint NOT NULL,
    at           bigint NOT NULL,
    ledger_index bigint NOT NULL,
    events       bigint NOT NULL,
    logical      text COLLATE "C",
    PRIMARY KEY (org, environment, idx)
);
-- By an expression, so that no look-up by number takes this one.
CREATE INDEX snapshot_entry ON evidence.snapshot (org, (environment || ''), ledger_index, idx);

-- Of logical environments: which had a member from an entry on (joined), or no more.
CREATE TABLE evidence.environment_member (
    org          bytea NOT NULL,
    environment  text COLLATE "C" NOT NULL,
    ledger_index bigint NOT NULL,
    member       text COLLATE "C" NOT NULL,
    joined       boolean NOT NULL,
    PRIMARY KEY (org, environment, ledger_index, member)
);
CREATE INDEX environment_member_of ON evidence.environment_member (org, member, environment);

-- When environments were last reported on, where that told nothing new too.
CREATE TABLE evidence.environment_report (
    org         bytea NOT NULL,
    environment text COLLATE "C" NOT NULL,
    at          bigint NOT NULL,
    PRIMARY KEY (org, environment)
);

-- An artifact that runs with the same data from one snapshot until before another. from_idx: the first snapshot with these
-- data; since_idx: the first of the run that this is a part of; until_idx: the first without it, or 2^63-1 while it lasts.
-- artifact: the fingerprint, or name: and the SHA-256 of the name where there is no digest. state: the
-- instance's JSON. event, exit_event: the number, among those of the environment, of the event that tells how it came to be
-- so, and of that which tells that it no longer runs.
CREATE TABLE evidence.instance (
    org         bytea NOT NULL,
    environment bytea NOT NULL,
    artifact    text COLLATE "C" NOT NULL,
    exited      boolean NOT NULL,
    from_idx    bigint NOT NULL,
    since_idx   bigint NOT NULL,
    until_idx   bigint NOT NULL,
    event       bigint,
    exit_event  bigint,
    state       text COLLATE "C" NOT NULL,
    PRIMARY KEY (org, environment, artifact, from_idx)
);
CREATE INDEX instance_until ON evidence.instance (org, environment, until_idx, from_idx);
-- The last of the intervals that make up a run.
CREATE INDEX instance_run ON evidence.instance (org, artifact, environment, since_idx)
    WHERE exited OR until_idx = 9223372036854775807;
CREATE INDEX instance_event ON evidence.instance (org, environment, event) WHERE event IS NOT NULL;
CREATE INDEX instance_exit_event ON evidence.instance (org, environment, exit_event) WHERE exit_event IS NOT NULL;
-- What lasts, of however many intervals: of an artifact, in an environment or in any. Not unique: one statement ends an
-- interval and begins the next in any order.
CREATE INDEX instance_lasting ON evidence.instance (org, artifact, environment)
    WHERE until_idx = 9223372036854775807;

-- An artifact that began to run; snapshot: the first of the run. report, flow, repo: of its report in one of its flows, one
-- with a repo if there is such; committed_at: when its commit was made. Numbered in the organization, in the environment and among those of the repo.
CREATE TABLE evidence.deployment (
    org                 bytea NOT NULL,
    ordinal             bigint NOT NULL,
    environment         bytea NOT NULL,
    environment_ordinal bigint NOT NULL,
    snapshot            bigint NOT NULL,
    artifact            text COLLATE "C" NOT NULL,
    name                text COLLATE "C" NOT NULL,
    compliant           boolean,
    report              bytea,
    flow                bytea,
    repo                text COLLATE "C",
    repo_ordinal        bigint,
    committed_at        bigint,
    at                  bigint NOT NULL,
    ledger_index        bigint NOT NULL,
    -- Here and below with what they are narrowed by, so that windows are found and counted by the index alone.
    CONSTRAINT deployment_org PRIMARY KEY (org, ordinal) INCLUDE (at, environment, flow)
);
CREATE UNIQUE INDEX deployment_environment
    ON evidence.deployment (org, environment, environment_ordinal) INCLUDE (at, flow);
CREATE UNIQUE INDEX deployment_repo
    ON evidence.deployment (org, repo, repo_ordinal) INCLUDE (at, environment) WHERE repo IS NOT NULL;

-- What artifacts that began to run with snapshot since_idx were called in flows: reference is the template's name, empty
-- without one. A row for each flow, where deployment has one for each start: of several flows that tells the one by which the
-- deployment is counted, for good, while here reports that come later count, too, and names are what is found by.
CREATE TABLE evidence.run_origin (
    org         bytea NOT NULL,
    environment bytea NOT NULL,
    flow        bytea NOT NULL,
    reference   text COLLATE "C" NOT NULL,
    since_idx   bigint NOT NULL,
    artifact    text COLLATE "C" NOT NULL,
    report      bytea NOT NULL,
    PRIMARY KEY (org, environment, flow, reference, since_idx, artifact)
);
-- For what has no name.
CREATE INDEX run_origin_flow ON evidence.run_origin (org, environment, flow, since_idx, artifact, reference);

-- Versions of policies, attestation types and controls; id: that record's.
CREATE TABLE evidence.version (
    org          bytea NOT NULL,
    id           text COLLATE "C" NOT NULL,
    number       bigint NOT NULL,
    ledger_index bigint NOT NULL,
    PRIMARY KEY (org, id, number)
);

-- Allowlist entries and their withdrawals: the newest row of an environment and fingerprint counts. ends_at: when it expires,
-- or was withdrawn.
CREATE TABLE evidence.allowance (
    org          bytea NOT NULL,
    environment  text COLLATE "C" NOT NULL,
    fingerprint  text COLLATE "C" NOT NULL,
    ledger_index bigint NOT NULL,
    ends_at      bigint,
    withdrawn    boolean NOT NULL,
    PRIMARY KEY (org, environment, fingerprint, ledger_index)
);

CREATE INDEX allowance_end ON evidence.allowance (ends_at) WHERE ends_at IS NOT NULL;

-- The newest entry of each environment and fingerprint. ends_at: the greatest number for one that does not expire, the least
-- for one that was withdrawn, so that those in force are a range.
CREATE TABLE evidence.allowed (
    org          bytea NOT NULL,
    environment  text COLLATE "C" NOT NULL,
    fingerprint  text COLLATE "C" NOT NULL,
    ledger_index bigint NOT NULL,
    ends_at      bigint NOT NULL,
    PRIMARY KEY (org, environment, fingerprint)
);

CREATE INDEX allowed_end ON evidence.allowed (org, environment, ends_at);

-- Texts that records refer to, by digest: the newest entry that keeps each.
CREATE TABLE evidence.interned_text (
    org          bytea NOT NULL,
    sha256       text COLLATE "C" NOT NULL,
    ledger_index bigint NOT NULL,
    PRIMARY KEY (org, sha256)
);

-- Contents that records name: they are kept beside the ledger.
CREATE TABLE evidence.attachment (
    org    bytea NOT NULL,
    sha256 text COLLATE "C" NOT NULL,
    size   bigint NOT NULL,
    PRIMARY KEY (org, sha256)
);

-- Contents that no record names yet, since when they are kept, and since when they are being removed. The row is
-- there before the first chunk is.
CREATE TABLE evidence.attachment_pending (
    org         bytea NOT NULL,
    sha256      text COLLATE "C" NOT NULL,
    kept_at     bigint NOT NULL,
    removing_at bigint,
    PRIMARY KEY (org, sha256)
);

-- The place outside of the database where the content of attachments is, at most one, by the id in its marker.
CREATE TABLE evidence.attachment_place (
    number    bigint PRIMARY KEY CHECK (number = 1),
    id        text COLLATE "C" NOT NULL,
    is_marked boolean NOT NULL
);

-- A blob exists once its row is here; chunks without one belong to a blob that is still coming, or never came.
CREATE TABLE evidence.blob (
    org    bytea NOT NULL,
    sha256 text COLLATE "C" NOT NULL,
    size   bigint NOT NULL,
    PRIMARY KEY (org, sha256)
);

-- seq: from 0, without gaps. Not compressed by the database: archives are already, and chunks are read whole.
CREATE TABLE evidence.blob_chunk (
    org    bytea NOT NULL,
    sha256 text COLLATE "C" NOT NULL,
    seq    bigint NOT NULL,
    data   bytea NOT NULL,
    PRIMARY KEY (org, sha256, seq)
);
ALTER TABLE evidence.blob_chunk ALTER COLUMN data SET STORAGE EXTERNAL;

-- Who does which background work, and how far each consumer has read each ledger: beside the ledgers, never made again
-- from them.
CREATE TABLE evidence.lease (
    name       text COLLATE "C" PRIMARY KEY,
    holder     text COLLATE "C" NOT NULL,
    expires_at bigint NOT NULL
);

CREATE TABLE evidence.cursor (
    org      bytea NOT NULL,
    consumer text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    PRIMARY KEY (org, consumer)
);

-- The last signed checkpoint of each ledger. note: the signed note.
CREATE TABLE evidence.checkpoint (
    org  bytea NOT NULL PRIMARY KEY,
    note text COLLATE "C" NOT NULL
);

-- The URLs of notifications, which are secret and therefore in no ledger. content: JSON, see evidence_core::actions::StoredUrl.
CREATE TABLE evidence.secret_url (
    org     bytea NOT NULL,
    id      text COLLATE "C" NOT NULL,
    content text COLLATE "C" NOT NULL,
    PRIMARY KEY (org, id)
);

-- How far the deliveries of each target of actions are, as JSON, and from when on the next attempt may be made, where
-- something waits: beside the ledgers, as cursors are.
CREATE TABLE evidence.delivery (
    org      bytea NOT NULL,
    target   text COLLATE "C" NOT NULL,
    mail     boolean NOT NULL,
    due_at   bigint,
    state    text NOT NULL,
    revision bigint NOT NULL,
    PRIMARY KEY (org, target)
);
CREATE INDEX delivery_due ON evidence.delivery (mail, org, due_at, target) WHERE due_at IS NOT NULL;
