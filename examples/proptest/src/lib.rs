//! A client, reduced to the relevant part: it converts the output of a container host to a report of running
//! artifacts. `tests/properties.rs` tests it.

use std::collections::BTreeMap;

use serde::Serialize;

/// A container as the host reports it.
#[derive(Debug, Clone)]
pub struct Container {
    /// The image's name and tag.
    pub image: String,
    /// The SHA-256 of the image in the host's form: `sha256:…`.
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
    /// Creates the report of these containers.
    pub fn of(containers: &[Container]) -> Self {
        let artifact = |container: &Container| {
            let digest = container.image_id.trim_start_matches("sha256:").to_owned();
            let digests = BTreeMap::from([(container.image.clone(), digest)]);
            Artifact { digests, creation_timestamp: container.started_at }
        };
        Self { artifacts: containers.iter().map(artifact).collect() }
    }
}
