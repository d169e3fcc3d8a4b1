//! Which paths there are, and what may be done with each.

use axum::http::Method;

use crate::json::unquote;

/// Longest path, in bytes.
const PATH_BYTES_MAX: usize = 8 << 10;

/// By this name paths mean the default exchange, whose own is empty.
const DEFAULT_EXCHANGE: &str = "amq.default";

/// An exchange or a queue in its namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub namespace: String,
    pub name: String,
}

/// The two ends of bindings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub namespace: String,
    pub source: String,
    pub destination: weir_model::routing::Destination,
}

/// Whose permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    All,
    User(String),
    Namespace(String),
    Both { namespace: String, user: String },
}

/// What a health check looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Alarms,
    Port(String),
    Protocols(String),
    Namespaces,
    NodeIsQuorumCritical,
    QueuesWithoutLeader { namespace: Option<String>, pattern: Option<String> },
    CertificateExpiration,
    MetadataStore,
    Ready,
}

/// What a path means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    Overview,
    ClusterName,
    WhoAmI,
    Nodes,
    Node(String),
    Namespaces,
    Namespace(String),
    Exchanges(Option<String>),
    Exchange(Named),
    Publish(Named),
    BindingsFrom(Named),
    BindingsToExchange(Named),
    Queues(Option<String>),
    Queue(Named),
    BindingsToQueue(Named),
    Contents(Named),
    Get(Named),
    QueueActions(Named),
    Bindings(Option<String>),
    BindingsBetween(Ends),
    Binding(Ends, String),
    Connections(Option<String>),
    Connection(String),
    ConnectionsOf(String),
    Channels(Option<String>),
    ChannelsOf(String),
    Channel(String),
    Consumers(Option<String>),
    Definitions(Option<String>),
    Users,
    User(String),
    Permissions(Of),
    TopicPermissions(Of),
    Policies {
        operator: bool,
        namespace: Option<String>,
    },
    Policy {
        operator: bool,
        named: Named,
    },
    /// Parameters, limits: there are none, and none can be made.
    Nothing,
    NothingOfThisName,
    Aliveness(String),
    Health(Check),
}

const READ: &[Method] = &[Method::HEAD, Method::GET];
const READ_PUT_DELETE: &[Method] = &[Method::HEAD, Method::GET, Method::PUT, Method::DELETE];
const READ_DELETE: &[Method] = &[Method::HEAD, Method::GET, Method::DELETE];
const READ_POST: &[Method] = &[Method::HEAD, Method::GET, Method::POST];
const READ_PUT: &[Method] = &[Method::HEAD, Method::GET, Method::PUT];
const POST: &[Method] = &[Method::POST];
const DELETE: &[Method] = &[Method::DELETE];

impl Resource {
    /// What a path means; none if it means nothing.
    pub(crate) fn of(path: &str) -> Option<Resource> {
        if path.len() > PATH_BYTES_MAX {
            return None;
        }
        // As in RabbitMQ a slash at the end means nothing.
        let parts: Vec<String> =
            path.strip_prefix("/api/")?.trim_end_matches('/').split('/').map(unquote).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        Resource::of_parts(&parts)
    }

    fn of_parts(parts: &[&str]) -> Option<Resource> {
        use Resource::*;
        let own = |text: &str| text.to_owned();
        let some = |text: &str| Some(text.to_owned());
        let named = |namespace: &str, name: &str| Named { namespace: own(namespace), name: own(name) };
        let exchange = |namespace: &str, name: &str| named(namespace, exchange_name(name));
        Some(match *parts {
            ["overview"] => Overview,
            ["cluster-name"] => ClusterName,
            ["whoami"] => WhoAmI,
            ["nodes"] => Nodes,
            ["nodes", node] => Node(own(node)),
            ["vhosts"] => Namespaces,
            ["vhosts", namespace] => Namespace(own(namespace)),
            ["vhosts", namespace, "permissions"] => Permissions(Of::Namespace(own(namespace))),
            ["vhosts", namespace, "topic-permissions"] => TopicPermissions(Of::Namespace(own(namespace))),
            ["vhosts", namespace, "connections"] => Connections(some(namespace)),
            ["vhosts", namespace, "channels"] => Channels(some(namespace)),
            ["exchanges"] => Exchanges(None),
            ["exchanges", namespace] => Exchanges(some(namespace)),
            ["exchanges", namespace, name] => Exchange(exchange(namespace, name)),
            ["exchanges", namespace, name, "publish"] => Publish(exchange(namespace, name)),
            ["exchanges", namespace, name, "bindings", "source"] => BindingsFrom(exchange(namespace, name)),
            ["exchanges", namespace, name, "bindings", "destination"] => {
                BindingsToExchange(exchange(namespace, name))
            }
            ["queues"] | ["queues", "detailed"] => Queues(None),
            ["queues", namespace] => Queues(some(namespace)),
            ["queues", namespace, name] => Queue(named(namespace, name)),
            ["queues", namespace, name, "bindings"] => BindingsToQueue(named(namespace, name)),
            ["queues", namespace, name, "contents"] => Contents(named(namespace, name)),
            ["queues", namespace, name, "get"] => Get(named(namespace, name)),
            ["queues", namespace, name, "actions"] => QueueActions(named(namespace, name)),
            ["bindings"] => Bindings(None),
            ["bindings", namespace] => Bindings(some(namespace)),
            ["bindings", namespace, "e", source, kind, destination] => {
                BindingsBetween(ends(namespace, source, kind, destination)?)
            }
            ["bindings", namespace, "e", source, kind, destination, key] => {
                Binding(ends(namespace, source, kind, destination)?, own(key))
            }
            ["connections"] => Connections(None),
            ["connections", name] => Connection(own(name)),
            ["connections", "username", user] => ConnectionsOf(own(user)),
            ["connections", name, "channels"] => ChannelsOf(own(name)),
            ["channels"] => Channels(None),
            ["channels", name] => Channel(own(name)),
            ["consumers"] => Consumers(None),
            ["consumers", namespace] => Consumers(some(namespace)),
            ["definitions"] | ["all-configuration"] => Definitions(None),
            ["definitions", namespace] => Definitions(some(namespace)),
            ["users"] => Users,
            ["users", user] => User(own(user)),
            ["users", user, "permissions"] => Permissions(Of::User(own(user))),
            ["users", user, "topic-permissions"] => TopicPermissions(Of::User(own(user))),
            ["permissions"] => Permissions(Of::All),
            ["permissions", namespace, user] => {
                Permissions(Of::Both { namespace: own(namespace), user: own(user) })
            }
            ["topic-permissions"] => TopicPermissions(Of::All),
            ["topic-permissions", namespace, user] => {
                TopicPermissions(Of::Both { namespace: own(namespace), user: own(user) })
            }
            [kind @ ("policies" | "operator-policies")] => {
                Policies { operator: is_operators(kind), namespace: None }
            }
            [kind @ ("policies" | "operator-policies"), namespace] => {
                Policies { operator: is_operators(kind), namespace: some(namespace) }
            }
            [kind @ ("policies" | "operator-policies"), namespace, name] => {
                Policy { operator: is_operators(kind), named: named(namespace, name) }
            }
            ["vhost-limits" | "user-limits"]
            | ["vhost-limits" | "user-limits", _]
            | ["parameters"]
            | ["parameters", _]
            | ["parameters", _, _]
            | ["global-parameters"] => Nothing,
            ["vhost-limits" | "user-limits", _, _] | ["parameters", _, _, _] | ["global-parameters", _] => {
                NothingOfThisName
            }
            ["aliveness-test", namespace] => Aliveness(own(namespace)),
            ["healthchecks", "node"] => Health(Check::Ready),
            ["health", "checks", ref check @ ..] => Health(Check::of_parts(check)?),
            _ => return None,
        })
    }

    /// What may be done with it.
    pub(crate) fn methods(&self) -> &'static [Method] {
        use Resource::*;
        match self {
            Namespace(_) | Exchange(_) | Queue(_) | User(_) | Policy { .. } | NothingOfThisName => {
                READ_PUT_DELETE
            }
            Permissions(Of::Both { .. }) | TopicPermissions(Of::Both { .. }) => READ_PUT_DELETE,
            Publish(_) | Get(_) | QueueActions(_) => POST,
            Contents(_) => DELETE,
            BindingsBetween(_) | Definitions(_) => READ_POST,
            Binding(..) | Connection(_) | ConnectionsOf(_) => READ_DELETE,
            ClusterName => READ_PUT,
            _ => READ,
        }
    }

    /// Whether anybody may ask: load balancers do.
    pub(crate) fn is_open(&self) -> bool {
        *self == Resource::Health(Check::Ready)
    }
}

impl Check {
    fn of_parts(parts: &[&str]) -> Option<Check> {
        Some(match *parts {
            ["alarms"] | ["local-alarms"] => Check::Alarms,
            ["port-listener", port] => Check::Port(port.to_owned()),
            ["protocol-listener", protocols] => Check::Protocols(protocols.to_owned()),
            ["virtual-hosts"] => Check::Namespaces,
            ["node-is-quorum-critical"] | ["node-is-mirror-sync-critical"] => Check::NodeIsQuorumCritical,
            ["quorum-queues-without-elected-leaders", "all-vhosts"] => {
                Check::QueuesWithoutLeader { namespace: None, pattern: None }
            }
            ["quorum-queues-without-elected-leaders", "all-vhosts", "pattern", pattern] => {
                Check::QueuesWithoutLeader { namespace: None, pattern: Some(pattern.to_owned()) }
            }
            ["quorum-queues-without-elected-leaders", "vhost", namespace] => {
                Check::QueuesWithoutLeader { namespace: Some(namespace.to_owned()), pattern: None }
            }
            ["quorum-queues-without-elected-leaders", "vhost", namespace, "pattern", pattern] => {
                Check::QueuesWithoutLeader {
                    namespace: Some(namespace.to_owned()),
                    pattern: Some(pattern.to_owned()),
                }
            }
            ["certificate-expiration", _, _] => Check::CertificateExpiration,
            ["metadata-store", "initialized"] => Check::MetadataStore,
            ["is-in-service"] | ["ready-to-serve-clients"] => Check::Ready,
            _ => return None,
        })
    }
}

fn is_operators(kind: &str) -> bool {
    kind == "operator-policies"
}

fn exchange_name(name: &str) -> &str {
    if name == DEFAULT_EXCHANGE { "" } else { name }
}

fn ends(namespace: &str, source: &str, kind: &str, destination: &str) -> Option<Ends> {
    use weir_model::routing::Destination;
    let destination = match kind {
        "q" => Destination::Queue(destination.to_owned()),
        "e" => Destination::Exchange(exchange_name(destination).to_owned()),
        _ => return None,
    };
    Some(Ends { namespace: namespace.to_owned(), source: exchange_name(source).to_owned(), destination })
}

#[cfg(test)]
mod tests {
    use weir_model::routing::Destination;

    use super::*;

    fn named(namespace: &str, name: &str) -> Named {
        Named { namespace: namespace.into(), name: name.into() }
    }

    #[test]
    fn paths_mean_what_they_mean_to_rabbitmq() {
        for path in ["/api/overview", "/api/overview/", "/api/overview//"] {
            assert_eq!(Resource::of(path), Some(Resource::Overview));
        }
        assert_eq!(Resource::of("/api/queues/%2F/a%2fb+c"), Some(Resource::Queue(named("/", "a/b+c"))));
        assert_eq!(Resource::of("/api/queues/detailed"), Some(Resource::Queues(None)));
        assert_eq!(Resource::of("/api/exchanges/%2F/amq.default"), Some(Resource::Exchange(named("/", ""))));
        let between = Ends {
            namespace: "v".into(),
            source: String::new(),
            destination: Destination::Exchange("d".into()),
        };
        assert_eq!(
            Resource::of("/api/bindings/v/e/amq.default/e/d/a%2Bb~h"),
            Some(Resource::Binding(between, "a+b~h".into()))
        );
        assert!(matches!(Resource::of("/api/bindings/v/e//q/d"), Some(Resource::BindingsBetween(_))));
    }

    #[test]
    fn paths_that_mean_nothing() {
        let long = format!("/api/queues/{}", "x".repeat(PATH_BYTES_MAX));
        for path in
            ["", "/", "/api", "/api/", "/queues", "/api/que", "/api/bindings/v/e/s/x/d", "/api/health", &long]
        {
            assert_eq!(Resource::of(path), None, "{path}");
        }
    }

    #[test]
    fn who_balances_load_needs_no_user() {
        let open = |path| Resource::of(path).unwrap().is_open();
        assert!(
            open("/api/health/checks/is-in-service") && open("/api/health/checks/ready-to-serve-clients")
        );
        assert!(!open("/api/health/checks/alarms") && !open("/api/overview"));
    }
}
