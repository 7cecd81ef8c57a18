//! Deployments: artifacts that started running in an environment.

pub(crate) mod operations;
pub(crate) mod store;
pub(crate) mod view;

pub use operations::{
    GetDeployment, GetDeploymentFrequency, GetRepoDeploymentStatistics, ListDeployments,
    ListEnvironmentDeployments, ListRepoDeployments,
};
pub use store::{
    DeployedReport, Deployment, DeploymentFilter, DeploymentScope, DeploymentStore, DeploymentTime,
};
pub use view::{
    DeploymentFrequency, DeploymentLinks, DeploymentList, DeploymentPage, DeploymentStatistics,
    DeploymentView, EnvironmentDeployments,
};
