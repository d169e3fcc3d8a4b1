//! `/api/v1/users` and `/api/v1/namespaces`.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use weir_broker::Broker;
use weir_model::access::{
    AccessChange, AccessRecords, DEFAULT_NAMESPACE, NamespaceMeta, PermissionMeta, TopicPermissionMeta,
    UserLimits, UserMeta,
};

use super::{Answer, body};
use crate::error::ApiError;
use crate::front::Front;

/// A user as it is shown: everything but the password.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    name: String,
    tags: Vec<String>,
    /// Whether it is the password that everybody knows.
    default_password: bool,
    permissions: Vec<Permission>,
    topic_permissions: Vec<TopicPermission>,
}

/// What a user may do in a namespace.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Permission {
    #[serde(default = "default_namespace")]
    namespace: String,
    #[serde(default)]
    configure: String,
    #[serde(default)]
    write: String,
    #[serde(default)]
    read: String,
}

/// Which routing keys a user may use with an exchange.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TopicPermission {
    #[serde(default = "default_namespace")]
    namespace: String,
    exchange: String,
    #[serde(default)]
    write: String,
    #[serde(default)]
    read: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Create {
    name: String,
    password: String,
    #[serde(default)]
    tags: Vec<String>,
}

/// What is to be different.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Alter {
    password: Option<String>,
    tags: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Place {
    #[serde(default = "default_namespace")]
    namespace: String,
    exchange: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Namespace {
    name: String,
    #[serde(default)]
    description: String,
}

/// What was done.
#[derive(Debug, Serialize)]
pub(super) struct Deleted {
    deleted: String,
}

fn default_namespace() -> String {
    DEFAULT_NAMESPACE.to_owned()
}

pub(super) async fn list(State(front): State<Arc<Front>>) -> Answer<Vec<Shown>> {
    let records = front.broker.access_records()?;
    Ok(Json(records.users.iter().map(|user| shown(&records, user)).collect()))
}

pub(super) async fn describe(State(front): State<Arc<Front>>, Path(name): Path<String>) -> Answer<Shown> {
    Ok(Json(find(&front.broker, &name)?))
}

pub(super) async fn create(
    State(front): State<Arc<Front>>,
    bytes: Result<Bytes, BytesRejection>,
) -> Result<(StatusCode, Json<Shown>), ApiError> {
    let Create { name, password, tags } = body(bytes)?;
    let passwords = front.broker.hash_password(password.into_bytes().into()).await?;
    let user = UserMeta { name: name.clone(), passwords, tags, limits: UserLimits::default() };
    front.broker.change_access(AccessChange::PutUser { user, new: true }).await?;
    Ok((StatusCode::CREATED, Json(find(&front.broker, &name)?)))
}

pub(super) async fn alter(
    State(front): State<Arc<Front>>,
    Path(name): Path<String>,
    bytes: Result<Bytes, BytesRejection>,
) -> Answer<Shown> {
    let Alter { password, tags } = body(bytes)?;
    let access = front.broker.access();
    let Some(user) = access.user(&name) else { return Err(ApiError::unknown_user(&name)) };
    let mut user = UserMeta::clone(user);
    if let Some(password) = password {
        user.passwords = front.broker.hash_password(password.into_bytes().into()).await?;
    }
    user.tags = tags.unwrap_or(user.tags);
    front.broker.change_access(AccessChange::PutUser { user, new: false }).await?;
    Ok(Json(find(&front.broker, &name)?))
}

pub(super) async fn delete(State(front): State<Arc<Front>>, Path(name): Path<String>) -> Answer<Deleted> {
    front.broker.change_access(AccessChange::DeleteUser { name: name.clone() }).await?;
    Ok(Json(Deleted { deleted: name }))
}

pub(super) async fn grant(
    State(front): State<Arc<Front>>,
    Path(name): Path<String>,
    bytes: Result<Bytes, BytesRejection>,
) -> Answer<Shown> {
    let Permission { namespace, configure, write, read } = body(bytes)?;
    let permission = PermissionMeta { user: name.clone(), namespace, configure, write, read };
    front.broker.change_access(AccessChange::PutPermission { permission }).await?;
    Ok(Json(find(&front.broker, &name)?))
}

pub(super) async fn revoke(
    State(front): State<Arc<Front>>,
    Path(name): Path<String>,
    Query(Place { namespace, .. }): Query<Place>,
) -> Answer<Shown> {
    let change = AccessChange::DeletePermission { user: name.clone(), namespace };
    front.broker.change_access(change).await?;
    Ok(Json(find(&front.broker, &name)?))
}

pub(super) async fn grant_topics(
    State(front): State<Arc<Front>>,
    Path(name): Path<String>,
    bytes: Result<Bytes, BytesRejection>,
) -> Answer<Shown> {
    let TopicPermission { namespace, exchange, write, read } = body(bytes)?;
    let permission = TopicPermissionMeta { user: name.clone(), namespace, exchange, write, read };
    front.broker.change_access(AccessChange::PutTopicPermission { permission }).await?;
    Ok(Json(find(&front.broker, &name)?))
}

pub(super) async fn revoke_topics(
    State(front): State<Arc<Front>>,
    Path(name): Path<String>,
    Query(Place { namespace, exchange }): Query<Place>,
) -> Answer<Shown> {
    let change = AccessChange::DeleteTopicPermission { user: name.clone(), namespace, exchange };
    front.broker.change_access(change).await?;
    Ok(Json(find(&front.broker, &name)?))
}

pub(super) async fn namespaces(State(front): State<Arc<Front>>) -> Answer<Vec<Namespace>> {
    let records = front.broker.access_records()?;
    let shown = records.namespaces.iter().map(|namespace| Namespace {
        name: namespace.name.clone(),
        description: namespace.description.clone(),
    });
    Ok(Json(shown.collect()))
}

pub(super) async fn create_namespace(
    State(front): State<Arc<Front>>,
    bytes: Result<Bytes, BytesRejection>,
) -> Result<(StatusCode, Json<Namespace>), ApiError> {
    let Namespace { name, description } = body(bytes)?;
    let namespace =
        NamespaceMeta { name: name.clone(), description: description.clone(), ..NamespaceMeta::default() };
    front.broker.change_access(AccessChange::PutNamespace { namespace, new: true }).await?;
    Ok((StatusCode::CREATED, Json(Namespace { name, description })))
}

pub(super) async fn delete_namespace(
    State(front): State<Arc<Front>>,
    Path(name): Path<String>,
) -> Answer<Deleted> {
    front.broker.delete_namespace(&name).await?;
    Ok(Json(Deleted { deleted: name }))
}

fn find(broker: &Broker, name: &str) -> Result<Shown, ApiError> {
    let records = broker.access_records()?;
    let user = records.users.iter().find(|user| user.name == name);
    user.map(|user| shown(&records, user)).ok_or_else(|| ApiError::unknown_user(name))
}

fn shown(records: &AccessRecords, user: &UserMeta) -> Shown {
    let permissions = records.permissions.iter().filter(|permission| permission.user == user.name);
    let topics = records.topic_permissions.iter().filter(|permission| permission.user == user.name);
    Shown {
        name: user.name.clone(),
        tags: user.tags.clone(),
        default_password: user.passwords == UserMeta::initial().passwords,
        permissions: permissions
            .map(|permission| Permission {
                namespace: permission.namespace.clone(),
                configure: permission.configure.clone(),
                write: permission.write.clone(),
                read: permission.read.clone(),
            })
            .collect(),
        topic_permissions: topics
            .map(|permission| TopicPermission {
                namespace: permission.namespace.clone(),
                exchange: permission.exchange.clone(),
                write: permission.write.clone(),
                read: permission.read.clone(),
            })
            .collect(),
    }
}
