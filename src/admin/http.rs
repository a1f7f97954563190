//! stub
#![allow(missing_docs)]
use crate::admin::auth::AdminKey;
use crate::control::Control;
use crate::telemetry::metrics::Metrics;
use std::sync::Arc;
pub trait Reloader: Send + Sync {
    fn reload(&self) -> Result<Vec<String>, Vec<String>>;
}
pub struct AdminParts {
    pub control: Arc<Control>,
    pub metrics: Arc<Metrics>,
    pub key: Option<AdminKey>,
    pub open_metrics: bool,
    pub reloader: Option<Arc<dyn Reloader>>,
}
pub async fn serve(_l: tokio::net::TcpListener, _p: AdminParts) {}
