//! A team's own client, or the part of one that matters here: it turns what a container host reports into a report of
//! what runs. `tests/properties.rs` tests it.

use std::collections::BTreeMap;

use serde::Serialize;

/// A container as the host reports it.
#[derive(Debug, Clone)]
pub struct Container {
    /// The image's name and tag.
    pub image: String,
    /// The SHA-256 of the image, as the host writes it: `sha256:…`.
    pub image_id: String,
    /// When it was started, in epoch seconds.
    pub started_at: u32,
}

/// The body of `PUT /environments/{org}/{env_name}/report/docker`.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    artifacts: Vec<Artifact>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Artifact {
    digests: BTreeMap<String, String>,
    creation_timestamp: u32,
}

impl Report {
    /// What these containers run.
    pub fn of(containers: &[Container]) -> Self {
        let artifact = |container: &Container| {
            let digest = container.image_id.trim_start_matches("sha256:").to_owned();
            let digests = BTreeMap::from([(container.image.clone(), digest)]);
            Artifact { digests, creation_timestamp: container.started_at }
        };
        Self { artifacts: containers.iter().map(artifact).collect() }
    }
}
