//! What is answered: one module for each noun.

mod bindings;
mod definitions;
mod exchanges;
mod health;
mod messages;
mod namespaces;
mod nodes;
mod overview;
mod policies;
mod queues;
mod sessions;
mod users;

use axum::http::Method;
use serde_json::{Value, json};

use crate::ask::Ask;
use crate::failure::{Failure, Result};
use crate::front::Answer;
use crate::listing;
use crate::resource::{Of, Resource};

/// Carries a request out. Its method is one that the resource has.
pub(crate) async fn answer(ask: Ask, method: Method, resource: Resource) -> Result<Answer> {
    use Resource::*;
    let read = method == Method::GET || method == Method::HEAD;
    match resource {
        Overview => overview::describe(&ask).await,
        ClusterName if read => Ok(Answer::Json(json!({ "name": nodes::CLUSTER_NAME }))),
        ClusterName => Err(Failure::not_served("the cluster's name cannot be changed")),
        WhoAmI => Ok(Answer::Json(users::who_am_i(&ask.user))),
        Nodes => nodes::list(&ask),
        Node(name) => nodes::describe(&ask, &name),

        Namespaces => namespaces::list(&ask).await,
        Namespace(name) if read => namespaces::describe(&ask, &name).await,
        Namespace(name) if method == Method::PUT => namespaces::create(&ask, &name).await,
        Namespace(name) => namespaces::delete(&ask, &name).await,

        Exchanges(namespace) => exchanges::list(&ask, namespace.as_deref()),
        Exchange(named) if read => exchanges::describe(&ask, &named),
        Exchange(named) if method == Method::PUT => exchanges::declare(&ask, &named).await,
        Exchange(named) => exchanges::delete(&ask, &named).await,
        Publish(named) => messages::publish(ask, named).await,

        Queues(namespace) => queues::list(&ask, namespace.as_deref()).await,
        Queue(named) if read => queues::describe(&ask, &named).await,
        Queue(named) if method == Method::PUT => queues::declare(&ask, &named).await,
        Queue(named) => queues::delete(&ask, &named).await,
        Contents(named) => queues::purge(&ask, &named).await,
        Get(named) => messages::get(ask, named).await,
        QueueActions(named) => queues::act(&ask, &named),

        Bindings(namespace) => bindings::list(&ask, namespace.as_deref()),
        BindingsFrom(named) => bindings::list_from(&ask, &named),
        BindingsToExchange(named) => bindings::list_to_exchange(&ask, &named),
        BindingsToQueue(named) => bindings::list_to_queue(&ask, &named),
        BindingsBetween(ends) if read => bindings::list_between(&ask, &ends),
        BindingsBetween(ends) => bindings::create(&ask, &ends).await,
        Binding(ends, key) if read => bindings::describe(&ask, &ends, &key),
        Binding(ends, key) => bindings::delete(&ask, &ends, &key).await,

        Connections(namespace) => sessions::list(&ask, namespace.as_deref()),
        Connection(name) if read => sessions::describe(&ask, &name),
        Connection(name) => sessions::close(&ask, &name).await,
        ConnectionsOf(user) if read => sessions::list_of(&ask, &user),
        ConnectionsOf(user) => sessions::close_all_of(&ask, &user).await,
        Channels(namespace) => sessions::list_channels(&ask, namespace.as_deref()).await,
        ChannelsOf(name) => sessions::list_channels_of(&ask, &name).await,
        Channel(name) => sessions::describe_channel(&ask, &name).await,
        Consumers(namespace) => sessions::list_consumers(&ask, namespace.as_deref()).await,

        Definitions(namespace) if read => definitions::export(&ask, namespace.as_deref()),
        Definitions(namespace) => definitions::import(ask, namespace).await,

        Users => users::list(&ask),
        User(name) if read => users::describe(&ask, &name),
        User(name) if method == Method::PUT => users::declare(&ask, &name).await,
        User(name) => users::delete(&ask, &name).await,
        Permissions(Of::Both { namespace, user }) if method == Method::PUT => {
            users::permit(&ask, &namespace, &user).await
        }
        Permissions(Of::Both { namespace, user }) if method == Method::DELETE => {
            users::forbid(&ask, &namespace, &user).await
        }
        Permissions(of) => users::list_permissions(&ask, &of),
        TopicPermissions(Of::Both { namespace, user }) if method == Method::PUT => {
            users::permit_topics(&ask, &namespace, &user).await
        }
        TopicPermissions(Of::Both { namespace, user }) if method == Method::DELETE => {
            users::forbid_topics(&ask, &namespace, &user).await
        }
        TopicPermissions(of) => users::list_topic_permissions(&ask, &of),
        Policies { operator, namespace } => policies::list(&ask, operator, namespace.as_deref()),
        Policy { operator, named } if read => policies::describe(&ask, operator, &named),
        Policy { operator, named } if method == Method::PUT => policies::put(&ask, operator, &named).await,
        Policy { operator, named } => policies::delete(&ask, operator, &named).await,
        Nothing => empty(&ask),
        NothingOfThisName if read || method == Method::DELETE => Err(Failure::nothing_there()),
        NothingOfThisName => {
            Err(Failure::not_served("parameters and limits are not served: there is nothing to set"))
        }

        Aliveness(namespace) => health::aliveness(&ask, &namespace),
        Health(check) => health::check(&ask, check),
    }
}

/// There are none of these.
fn empty(ask: &Ask) -> Result<Answer> {
    Ok(Answer::Json(listing::list(Vec::new(), &ask.query, &[])?))
}

/// Puts a value in if there is one.
fn put<V: Into<Value>>(object: &mut Value, name: &str, value: Option<V>) {
    if let (Value::Object(object), Some(value)) = (object, value) {
        object.insert(name.to_owned(), value.into());
    }
}
