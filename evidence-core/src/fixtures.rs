//! Example records, the smallest of each kind, for unit tests and for the checks of stores.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde_json::json;

use crate::actions::secret_url::UrlRecord;
use crate::artifacts::Artifact;
use crate::attestations::{Attestation, Binding, Details};
use crate::auth::{Actor, ActorKind};
use crate::bounded::{Dictionary, FreeForm, List};
use crate::decode::UnknownFields;
use crate::environments::{Environment, EnvironmentKind};
use crate::fact::Fact;
use crate::flows::{Flow, Visibility};
use crate::git::GitCommit;
use crate::id::Id;
use crate::json::JsonText;
use crate::ledger::Hash;
use crate::links::{ExternalUrl, ExternalUrls};
use crate::name::Fingerprint;
use crate::orgs::{OrgKind, Organization};
use crate::page::PageRequest;
use crate::repos::{RepoInfo, VcsProvider};
use crate::tags::Tags;
use crate::time::{SentSeconds, Timestamp};
use crate::trails::Trail;

/// The `n`th id; ids sort as their numbers.
pub fn id(n: u64) -> Id {
    named(&format!("{:08x}-0000-0000-0000-{:08x}", n >> 32, n & 0xffff_ffff))
}

/// The `n`th instant, with microseconds that no double-rounding survives.
pub fn at(n: i64) -> Timestamp {
    Timestamp::from_micros(1_776_252_299_785_511 + n * 1_000_003)
}

/// A validated text.
pub fn named<T: FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().expect("the fixtures are valid")
}

/// The fingerprint that begins so, filled up with zeros.
pub fn fingerprint(start: &str) -> Fingerprint {
    named(&format!("{start:0<64}"))
}

pub fn jane() -> Actor {
    Actor { id: id(90), name: "jane".to_owned(), kind: ActorKind::User }
}

pub fn robot() -> Actor {
    Actor { id: id(91), name: "robot".to_owned(), kind: ActorKind::ServiceAccount }
}

/// The record of a secret URL. The digest is that of no URL.
pub fn url_record(n: u32) -> UrlRecord {
    UrlRecord { id: id(n.into()), host: "hooks.example.com".to_owned(), digest: Hash::of(n.to_string()) }
}

pub fn request(offset: u64, limit: u64) -> PageRequest {
    PageRequest { offset, limit }
}

/// Texts that quoting, patterns and encodings stumble over.
pub fn awkward() -> String {
    "it's \"100%\" _sure_ \\ ünïcödé 🦀\r\n\t{}".to_owned()
}

/// Free-form JSON, with numbers that no binary type keeps as they are.
pub fn user_data() -> JsonText {
    let text =
        json!({ "null": null, "list": [1, -2.5, true, awkward()], "": {}, "b": "2", "a": "1" }).to_string();
    free_form(&text.replace("-2.5", "1e400,-0,1.0,1E5,123456789012345678901234567890"))
}

/// Free-form JSON of this text.
pub fn free_form(text: &str) -> JsonText {
    text.parse().unwrap_or_default()
}

pub fn tags(pairs: &[(&str, &str)]) -> Tags {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

pub fn bare_commit() -> GitCommit {
    GitCommit {
        sha1: named(&"5".repeat(40)),
        message: None,
        author: None,
        author_username: None,
        branch: None,
        timestamp: None,
        url: None,
        parents: None,
        verified: None,
        signature_state: None,
    }
}

pub fn full_commit() -> GitCommit {
    GitCommit {
        message: Some(named(&awkward())),
        author: Some(named("Jane <jane@example.com>")),
        author_username: Some(named("jane")),
        branch: Some(named("main")),
        timestamp: Some(SentSeconds(at(3))),
        url: Some(named("https://example.com/commit")),
        parents: Some(List(vec![named(&"6".repeat(40)), named(&"7".repeat(40))])),
        verified: Some(false),
        signature_state: Some(named("")),
        ..bare_commit()
    }
}

pub fn bare_repo_info(name: &str) -> RepoInfo {
    RepoInfo {
        name: named(name),
        url: named(&format!("https://example.com/{name}")),
        id: None,
        description: None,
        provider: None,
        namespace_path: None,
        additional_info: None,
    }
}

pub fn full_repo_info(name: &str) -> RepoInfo {
    RepoInfo {
        id: Some(named("4711")),
        description: Some(named("")),
        provider: Some(VcsProvider::AzureDevops),
        namespace_path: Some(List(vec![named("group"), named("sub")])),
        additional_info: Some(FreeForm(free_form(r#"{"null":null}"#))),
        ..bare_repo_info(name)
    }
}

pub fn external_urls() -> ExternalUrls {
    let url = |fingerprint| ExternalUrl { href: named("https://example.com/%41"), fingerprint };
    Dictionary(BTreeMap::from([(named("plain"), url(None)), (named("pinned"), url(Some(fingerprint("ab"))))]))
}

pub fn organization(n: u64, name: &str) -> Organization {
    Organization { id: id(n), name: named(name), kind: OrgKind::Shared, created_at: at(1) }
}

pub fn flow(n: u64, name: &str) -> Flow {
    Flow {
        id: id(n),
        name: named(name),
        description: String::new(),
        visibility: Visibility::Private,
        template: None,
        template_id: id(n + 1_000_000),
        tags: Tags::new(),
        created_at: at(2),
        created_by: jane(),
        former_names: Vec::new(),
        archived_at: None,
        unknown: UnknownFields::default(),
    }
}

pub fn flow_created(n: u64, name: &str) -> Fact {
    Fact::FlowCreated { record: flow(n, name) }
}

pub fn trail(n: u64, flow: u64, name: &str) -> Trail {
    Trail {
        id: id(n),
        flow: id(flow),
        name: named(name),
        description: String::new(),
        git_commit_info: None,
        repo_info: None,
        repo_ids: Vec::new(),
        origin_url: String::new(),
        user_data: JsonText::empty_object(),
        external_urls: None,
        template: None,
        template_id: id(flow + 1_000_000),
        created_at: at(3),
        created_by: jane(),
        last_modified_at: at(3),
        last_modified_by: jane(),
        unknown: UnknownFields::default(),
    }
}

pub fn trail_begun(n: u64, flow: u64, name: &str) -> Fact {
    Fact::TrailBegun { record: trail(n, flow, name) }
}

pub fn artifact(n: u64, flow: u64, trail: Option<u64>, start: &str) -> Artifact {
    Artifact {
        id: id(n),
        flow: id(flow),
        trail: trail.map(id),
        fingerprint: fingerprint(start),
        filename: "app".to_owned(),
        description: String::new(),
        template_reference_name: String::new(),
        git_commit: None,
        git_commit_info: None,
        repo_info: None,
        repo: None,
        commits_list: Vec::new(),
        is_compliant: None,
        reported_template: None,
        commit_url: String::new(),
        build_url: String::new(),
        repo_url: String::new(),
        user_data: JsonText::empty_object(),
        external_urls: None,
        annotations: FreeForm::default(),
        template: None,
        created_at: at(4),
        created_by: jane(),
    }
}

pub fn artifact_reported(n: u64, flow: u64, trail: Option<u64>, start: &str) -> Fact {
    Fact::ArtifactReported { record: artifact(n, flow, trail, start) }
}

pub fn attestation(n: u64, flow: u64, trail: u64, name: &str) -> Attestation {
    Attestation {
        id: id(n),
        flow: id(flow),
        trail: id(trail),
        name: named(name),
        kind: "generic".to_owned(),
        is_compliant: true,
        binding: Binding::Trail,
        description: None,
        origin_url: String::new(),
        git_commit_info: None,
        repo_info: None,
        repo: None,
        external_urls: None,
        annotations: None,
        user_data: JsonText::empty_object(),
        details: Details::Generic,
        data: None,
        attachments: Vec::new(),
        evidence: None,
        created_at: at(5),
        created_by: jane(),
    }
}

pub fn attestation_added(n: u64, flow: u64, trail: u64, name: &str) -> Fact {
    Fact::AttestationAdded { record: attestation(n, flow, trail, name) }
}

pub fn environment(n: u64, name: &str) -> Environment {
    Environment {
        id: id(n),
        name: named(name),
        kind: EnvironmentKind::K8S,
        description: String::new(),
        included: Vec::new(),
        policies: Vec::new(),
        include_scaling: false,
        require_provenance: false,
        tags: Tags::new(),
        created_at: at(2),
        created_by: jane(),
        last_modified_at: at(2),
        unknown: UnknownFields::default(),
    }
}
