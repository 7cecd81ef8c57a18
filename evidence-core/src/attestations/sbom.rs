//! Software bills of materials: the summary that is recorded of a reported one. The keys are those that the
//! public client sends, and those of CycloneDX and SPDX documents.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A summary of a bill of materials. A value that the document does not contain is left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SbomSummary {
    /// The format of the document.
    pub format: String,
    /// The number of its components.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component_count: Option<u64>,
    /// The tools that created it: their names, with their versions if known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// The name of the described software.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The version of the described software.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject_version: Option<String>,
    /// The reason why it is not compliant; absent if it is compliant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The most tools in a summary.
const TOOLS: usize = 100;

/// The most characters of a text in a summary.
const LONGEST: usize = 255;

impl SbomSummary {
    /// Returns the summary of a document in this format.
    pub(crate) fn of(format: &str, document: &Value) -> Self {
        let subject = [&document["subject"], &document["metadata"]["component"]];
        let subject = subject.into_iter().find(|subject| subject.is_object()).unwrap_or(&Value::Null);
        Self {
            format: format.to_owned(),
            component_count: component_count(document),
            tools: tools(document),
            // In SPDX, the document itself has the name.
            subject: text(&subject["name"]).or_else(|| text(&document["name"])),
            subject_version: text(&subject["version"]),
            reason: None,
        }
    }
}

fn component_count(document: &Value) -> Option<u64> {
    let listed = |name: &str| document[name].as_array().map(|list| list.len() as u64);
    document["package_count"].as_u64().or_else(|| listed("components")).or_else(|| listed("packages"))
}

/// Returns the tools, in the forms of the client, of CycloneDX (a list, or an object since 1.5) and of SPDX.
fn tools(document: &Value) -> Vec<String> {
    let tools = &document["metadata"]["tools"];
    let lists = [&document["tools"], tools, &tools["components"]];
    let named = lists.into_iter().filter_map(Value::as_array).flatten().filter_map(tool);
    let creators = document["creationInfo"]["creators"].as_array().into_iter().flatten();
    let creators = creators.filter_map(|creator| creator.as_str()?.strip_prefix("Tool: "));
    named.chain(creators.map(short)).take(TOOLS).collect()
}

fn tool(tool: &Value) -> Option<String> {
    let name = text(tool).or_else(|| text(&tool["name"]))?;
    Some(match text(&tool["version"]) {
        Some(version) => short(&format!("{name} {version}")),
        None => name,
    })
}

fn text(value: &Value) -> Option<String> {
    value.as_str().filter(|text| !text.is_empty()).map(short)
}

fn short(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_summary_says_what_the_document_says() {
        let of_client = json!({
            "created_at": "2026-01-01T00:00:00Z", "tools": ["syft 1.0", {"name": "trivy", "version": "0.5"}], "package_count": 7,
            "subject": {"name": "shop", "version": "1.2", "purl": "pkg:oci/shop", "sha256": "a"},
        });
        let cyclone = json!({
            "bomFormat": "CycloneDX", "components": [{}, {}],
            "metadata": {"tools": {"components": [{"name": "cdxgen", "version": "9"}]}, "component": {"name": "shop", "version": "1"}},
        });
        let old_cyclone = json!({"components": [], "metadata": {"tools": [{"vendor": "v", "name": "gen"}]}});
        let spdx = json!({
            "name": "shop-bom", "packages": [{}, {}, {}],
            "creationInfo": {"creators": ["Tool: syft-1.0", "Organization: acme"]},
        });
        let table = [
            (of_client, Some(7), vec!["syft 1.0", "trivy 0.5"], Some("shop"), Some("1.2")),
            (cyclone, Some(2), vec!["cdxgen 9"], Some("shop"), Some("1")),
            (old_cyclone, Some(0), vec!["gen"], None, None),
            (spdx, Some(3), vec!["syft-1.0"], Some("shop-bom"), None),
            (json!({}), None, vec![], None, None),
            (
                json!({"tools": {"a": 1}, "package_count": "7", "subject": [], "metadata": 1}),
                None,
                vec![],
                None,
                None,
            ),
            (json!({"package_count": -1, "subject": {"name": 1, "version": ""}}), None, vec![], None, None),
        ];
        for (document, component_count, tools, subject, version) in table {
            let expected = SbomSummary {
                format: "f".to_owned(),
                component_count,
                tools: tools.into_iter().map(str::to_owned).collect(),
                subject: subject.map(str::to_owned),
                subject_version: version.map(str::to_owned),
                reason: None,
            };
            assert_eq!(SbomSummary::of("f", &document), expected, "{document}");
        }
        let long = SbomSummary::of("f", &json!({"tools": vec!["é".repeat(999); 999]}));
        assert_eq!((long.tools.len(), long.tools[0].chars().count()), (100, 255));
    }
}
