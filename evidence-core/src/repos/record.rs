//! The reported and recorded form of repos, and the values derived from a report: identity, host, namespace.

use percent_encoding::percent_decode_str;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounded::{Address, Description, FreeForm, List, ShortText};
use crate::decode::{UnknownFields, keep_unknown_fields};
use crate::id::Id;
use crate::tags::record::Tags;
use crate::time::Timestamp;

/// The hosts and systems of repos.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the variants are the specification's values")]
#[non_exhaustive]
pub enum VcsProvider {
    #[serde(rename = "github")]
    Github,
    #[serde(rename = "gitlab")]
    Gitlab,
    #[serde(rename = "bitbucket")]
    Bitbucket,
    #[serde(rename = "bitbucket_cloud")]
    BitbucketCloud,
    #[serde(rename = "bitbucket_dc")]
    BitbucketDc,
    #[serde(rename = "azure-devops")]
    AzureDevops,
    #[serde(rename = "azure_devops_services")]
    AzureDevopsServices,
    #[serde(rename = "azure_devops_server")]
    AzureDevopsServer,
    #[serde(rename = "circleci")]
    Circleci,
    #[serde(rename = "git")]
    Git,
    #[serde(rename = "subversion")]
    Subversion,
}

impl VcsProvider {
    /// Returns the name of the provider in requests and responses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Github => "github",
            Self::Gitlab => "gitlab",
            Self::Bitbucket => "bitbucket",
            Self::BitbucketCloud => "bitbucket_cloud",
            Self::BitbucketDc => "bitbucket_dc",
            Self::AzureDevops => "azure-devops",
            Self::AzureDevopsServices => "azure_devops_services",
            Self::AzureDevopsServer => "azure_devops_server",
            Self::Circleci => "circleci",
            Self::Git => "git",
            Self::Subversion => "subversion",
        }
    }
}

/// The repository of a report. Unknown properties are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "RepoInfoPostInput")]
pub struct RepoInfo {
    /// The repository's name, with its owner: `owner/repo`.
    pub name: ShortText,
    /// Its URL.
    pub url: Address,
    /// Its id at the host. The repo is recognised by it if its name changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<ShortText>,
    /// Its description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<Description>,
    /// The kind of host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<VcsProvider>,
    /// The groups that contain it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_path: Option<List<ShortText>>,
    /// Further data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub additional_info: Option<FreeForm>,
}

/// A repo as recorded: the merged data of its reports. The newest report takes precedence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Repo {
    /// Its id in this API.
    pub id: Id,
    /// Its identity: the provider and the id at the host, otherwise the URL.
    pub identity: String,
    /// The reported data.
    pub info: RepoInfo,
    /// The host of its URL.
    pub vcs_instance: Option<String>,
    /// The part of the name after the last `/`.
    pub short_name: String,
    /// The groups that contain it: as reported, otherwise the segments of the name before the last.
    pub namespace_path: Vec<String>,
    /// Its tags.
    pub tags: Tags,
    /// When it was first reported.
    pub created_at: Timestamp,
    /// Fields that a newer version of the program recorded.
    #[serde(flatten, skip_deserializing)]
    pub unknown: UnknownFields,
}

keep_unknown_fields!(Repo);

impl Repo {
    /// Returns the repo after a later report, which may have fewer data than an earlier one.
    pub(super) fn reported_again(&self, newer: &RepoInfo) -> Self {
        let (RepoInfo { name, url, id, description, provider, namespace_path: path, additional_info }, known) =
            (newer.clone(), self.info.clone());
        // A namespace path belongs to the name that it was reported with.
        let known_id = known.id;
        let known_path = known.namespace_path.filter(|_| name == known.name);
        let mut info = RepoInfo {
            url: if url.is_empty() { known.url } else { url },
            id: id.clone().or(known_id.clone()),
            description: description.or(known.description),
            provider: provider.or(known.provider),
            namespace_path: path.or(known_path),
            additional_info: additional_info.or(known.additional_info),
            name,
        };
        // The merged provider and id may identify another repo. Then the known pair stays. If that does not
        // identify this repo either, the newer pair counts.
        if identity(&info) != self.identity {
            (info.provider, info.id) = (known.provider, known_id);
        }
        if identity(&info) != self.identity {
            (info.provider, info.id) = (provider, id);
        }
        Self {
            vcs_instance: vcs_instance(&info.url),
            short_name: short_name(&info.name),
            namespace_path: namespace_path(&info),
            info,
            ..self.clone()
        }
    }
}

/// Returns the identity of a repo. The id at the host takes precedence, because names and URLs change
/// (specification, Repo: `repo_id`). It is meaningful only together with the kind of host.
pub(super) fn identity(info: &RepoInfo) -> String {
    match (info.provider, info.id.as_deref()) {
        (Some(provider), Some(id)) if !id.is_empty() => format!("{}:{id}", provider.as_str()),
        _ if info.url.is_empty() => format!("name:{}", info.name),
        _ => format!("url:{}", info.url),
    }
}

pub(crate) fn short_name(name: &str) -> String {
    name.rsplit_once('/').map_or(name, |(_, short)| short).to_owned()
}

pub(crate) fn namespace_path(info: &RepoInfo) -> Vec<String> {
    match (&info.namespace_path, info.name.rsplit_once('/')) {
        (Some(sent), _) => sent.0.iter().map(ToString::to_string).collect(),
        (None, Some((namespace, _))) => segments(namespace),
        (None, None) => Vec::new(),
    }
}

/// Returns the URL of a comparison of two commits of the repo at this URL. Supports hosts whose names contain
/// the label `github` or `gitlab`; `None` for others.
pub(crate) fn compare_url(url: &str, before: &str, after: &str) -> Option<String> {
    let host = vcs_instance(url)?;
    let called = |name: &str| host.split(['.', ':']).any(|label| label == name);
    let between = if called("github") {
        "/compare/"
    } else if called("gitlab") {
        "/-/compare/"
    } else {
        return None;
    };
    let is_page = url.starts_with("https://") || url.starts_with("http://");
    if !is_page || before.is_empty() || after.is_empty() || url.contains(['?', '#']) {
        return None;
    }
    let repo = url.trim_end_matches('/');
    Some(format!("{}{between}{before}...{after}", repo.strip_suffix(".git").unwrap_or(repo)))
}

pub(super) fn segments(path: &str) -> Vec<String> {
    path.split('/').filter(|segment| !segment.is_empty()).map(str::to_owned).collect()
}

/// Returns the host of a repo's URL in lower case, with any port that is not the scheme's default. Also
/// accepts the scp-like form `user@host:path`. A text without a host, such as a path, gives `None`.
pub(crate) fn vcs_instance(url: &str) -> Option<String> {
    let (scheme, authority) = match url.split_once("://") {
        Some((scheme, rest)) => (scheme, rest.split(['/', '?', '#']).next().unwrap_or_default()),
        None => ("ssh", scp_like_authority(url)?),
    };
    let host_and_port = authority.rsplit_once('@').map_or(authority, |(_, after)| after);
    let (host, port) = split_port(host_and_port)?;
    let host = Some(unescaped(host).to_lowercase()).filter(|host| is_host(host))?;
    let default = default_port(&scheme.to_ascii_lowercase());
    Some(match port.filter(|port| Some(*port) != default) {
        Some(port) => format!("{host}:{port}"),
        None => host,
    })
}

/// Returns the part of `user@host:path` before the colon. A single letter before it is the drive of a path.
fn scp_like_authority(url: &str) -> Option<&str> {
    let (authority, _) = match url.find(']') {
        Some(end) if url.contains('[') => {
            url.split_at_checked(end + 1).filter(|(_, rest)| rest.starts_with(':'))?
        }
        _ => url.split_once(':')?,
    };
    (authority.len() > 1 && !authority.contains('/')).then_some(authority)
}

/// Splits `host:port`. The host may be an IPv6 address in brackets. Returns `None` if the port is not a
/// number.
fn split_port(authority: &str) -> Option<(&str, Option<u16>)> {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => match port {
            "" => Some((host, None)),
            digits => digits.parse().ok().map(|port| (host, Some(port))),
        },
        _ => Some((authority, None)),
    }
}

/// Decodes a host name. URLs percent-encode non-ASCII characters in it.
fn unescaped(host: &str) -> String {
    percent_decode_str(host).decode_utf8_lossy().into_owned()
}

fn is_host(text: &str) -> bool {
    match text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '-' | '_')),
    }
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" | "git+http" => Some(80),
        "https" | "git+https" => Some(443),
        "ssh" | "git+ssh" => Some(22),
        "git" => Some(9418),
        "svn" => Some(3690),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
