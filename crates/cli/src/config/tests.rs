//! What is effective, where it came from, and the words in which things are refused.

use std::collections::BTreeSet;
use std::path::Path;

use weir_broker::{BROKER_SETTINGS, BrokerOptions};
use weir_model::settings::TOPIC_SETTINGS;

use super::keys::{COARSER_KEYS, KEYS, find};
use super::settings::Settings;
use super::sources::{self, Layer};
use super::{Config, ConfigError, Source};

fn flags(given: &[(&str, &str)]) -> Layer {
    sources::flags(given.iter().map(|(name, value)| (name.to_string(), vec![value.to_string()])))
}

fn environment(given: &[(&str, &str)]) -> Result<Layer, ConfigError> {
    sources::environment(given.iter().map(|(name, value)| (name.to_string(), value.to_string())))
}

fn file(text: &str) -> Result<Layer, ConfigError> {
    sources::file(Path::new("weir.toml"), text)
}

fn config(layers: &[Layer]) -> Result<Config, ConfigError> {
    Config::new(&Settings::resolve(layers)?)
}

/// The sentence with which these flags are refused.
#[track_caller]
fn refused(given: &[(&str, &str)]) -> String {
    match config(&[flags(given)]) {
        Ok(_) => panic!("{given:?} was not refused"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_key_that_the_code_asks_for_is_in_the_table_and_every_default_is_in_its_bounds() {
    let config = config(&[]).expect("the defaults are a configuration");
    assert_eq!(config.broker.defaults, weir_model::settings::PartitionSettings::default());
    assert_eq!(config.listeners.len(), 2);
    assert_eq!(config.node_id, None);
}

#[test]
fn the_broker_has_every_setting_under_a_key_with_its_own_default() {
    let defaults = BrokerOptions::new("", [0; 32]);
    for setting in BROKER_SETTINGS {
        let key = find(setting.name).unwrap_or_else(|| panic!("{} is not a key", setting.name));
        assert_eq!(Some(key.default.to_owned()), defaults.get(setting.name), "{}", setting.name);
    }
    for setting in TOPIC_SETTINGS {
        let key = find(setting.broker_name).unwrap_or_else(|| panic!("{} is not a key", setting.broker_name));
        assert_eq!(Some(key.default.to_owned()), defaults.defaults.get(setting.name), "{}", setting.name);
    }
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    assert_eq!(
        refused(&[("group.min.session.timeout.ms", "5000"), ("group.max.session.timeout.ms", "4000")]),
        "group.min.session.timeout.ms: 5000 is above group.max.session.timeout.ms, which is 4000"
    );
}

#[test]
fn names_and_variables_are_unique() {
    let names: Vec<&str> = sources::known_names().collect();
    let variables: BTreeSet<String> = names.iter().map(|name| super::keys::variable(name)).collect();
    assert_eq!(variables.len(), names.len());
    assert_eq!(names.len(), KEYS.len() + COARSER_KEYS.len());
}

#[test]
fn flags_win_over_environment_over_file_over_defaults() {
    let layers = [
        file("num.partitions = 2\n[log.segment]\nbytes = 4096\n[log.retention]\nms = 7\n").unwrap(),
        environment(&[("WEIR_NUM_PARTITIONS", "3"), ("WEIR_LOG_SEGMENT_BYTES", "8KiB")]).unwrap(),
        flags(&[("num.partitions", "4")]),
    ];
    let settings = Settings::resolve(&layers).unwrap();
    let got = |name| (settings.display(name), settings.given(name).map(Source::to_string));
    assert_eq!(got("num.partitions"), ("4".into(), Some("flag --num.partitions".into())));
    assert_eq!(got("log.segment.bytes"), ("8192".into(), Some("environment WEIR_LOG_SEGMENT_BYTES".into())));
    assert_eq!(got("log.retention.ms"), ("7".into(), Some("file weir.toml".into())));
    assert_eq!(got("log.roll.ms"), ("604800000".into(), None));
}

#[test]
fn the_finer_unit_wins_within_a_source_and_the_stronger_source_over_it() {
    let both = file("log.retention.hours = 1\nlog.retention.minutes = 2\n").unwrap();
    let settings = Settings::resolve(std::slice::from_ref(&both)).unwrap();
    assert_eq!(settings.number("log.retention.ms"), 120_000);
    let settings = Settings::resolve(&[both, flags(&[("log.retention.hours", "-1")])]).unwrap();
    assert_eq!(settings.number("log.retention.ms"), -1);
}

#[test]
fn lists_come_as_arrays_repeated_flags_or_with_commas() {
    let listen = "kafka=127.0.0.1:1,http=127.0.0.1:2";
    let expected = ["kafka=127.0.0.1:1", "http=127.0.0.1:2"];
    let array = file("listen = ['kafka=127.0.0.1:1', 'http=127.0.0.1:2']").unwrap();
    for layer in [array, flags(&[("listen", listen)]), environment(&[("WEIR_LISTEN", listen)]).unwrap()] {
        let settings = Settings::resolve(&[layer]).unwrap();
        assert_eq!(settings.list("listen").collect::<Vec<_>>(), expected);
    }
}

#[test]
fn the_short_name_of_the_log_level_gives_way_to_the_long_one() {
    let level = |given| Settings::resolve(&[environment(given).unwrap()]).unwrap().display("log-level");
    assert_eq!(level(&[("WEIR_LOG", "debug")]), "debug");
    assert_eq!(level(&[("WEIR_LOG_LEVEL", "warn"), ("WEIR_LOG", "debug")]), "warn");
}

#[test]
fn unknown_keys_name_the_nearest_known_one() {
    assert_eq!(
        file("log.retentoin.ms = 1").unwrap_err().to_string(),
        "weir.toml: there is no key 'log.retentoin.ms'; did you mean log.retention.ms?"
    );
    assert_eq!(
        environment(&[("WEIR_DATADIR", "x")]).unwrap_err().to_string(),
        "the environment variable WEIR_DATADIR sets no key; did you mean WEIR_DATA_DIR?"
    );
    assert_eq!(
        file("[kitchen]\nsink = true").unwrap_err().to_string(),
        "weir.toml: there is no key 'kitchen.sink'; `weir config show` lists every key"
    );
}

#[test]
fn variables_of_container_platforms_are_skipped() {
    let platform = [
        ("WEIR_PORT", "tcp://10.0.0.1:9092"),
        ("WEIR_SERVICE_HOST", "10.0.0.1"),
        ("WEIR_SERVICE_PORT_KAFKA", "9092"),
        ("WEIR_PORT_9092_TCP_ADDR", "10.0.0.1"),
        ("HOME", "/root"),
    ];
    assert_eq!(environment(&platform).unwrap(), Layer::new());
}

#[test]
fn a_broken_file_is_named_with_its_line() {
    let error = file("node-id = 1\nlisten = [\n").unwrap_err().to_string();
    assert!(error.starts_with("weir.toml, line "), "{error}");
    assert!(!error.contains('\n'), "{error}");
    let error = file("node-id = 1.5").unwrap_err().to_string();
    assert!(error.starts_with("node-id (file weir.toml): "), "{error}");
}

#[test]
fn values_are_refused_with_the_key_the_source_and_the_bounds() {
    assert_eq!(
        refused(&[("num.partitions", "0")]),
        "num.partitions (flag --num.partitions): '0' is not a whole number from 1 to 10000"
    );
    assert_eq!(
        refused(&[("log.cleanup.policy", "compact")]),
        "log.cleanup.policy (flag --log.cleanup.policy): 'compact' is not supported; only delete is"
    );
    assert_eq!(
        refused(&[("auto.create.topics.enable", "yes")]),
        "auto.create.topics.enable (flag --auto.create.topics.enable): 'yes' is neither true nor false"
    );
    assert_eq!(
        refused(&[("log.segment.bytes", "9999999999999GiB")]),
        "log.segment.bytes (flag --log.segment.bytes): '9999999999999GiB' is not a size in bytes from 1024 to 2147483647"
    );
}

#[test]
fn a_log_level_that_is_none_is_refused() {
    assert_eq!(
        refused(&[("log-level", "inof")]),
        "log-level 'inof': 'inof' is not a level; use off, error, warn, info, debug, trace, or by module as \
         in info,weir_kafka=debug"
    );
    assert!(config(&[flags(&[("log-level", "info,weir_kafka=debug")])]).is_ok());
}

#[test]
fn a_listener_beyond_loopback_is_told_from_others() {
    let words = |listen: &str| {
        let listeners = config(&[flags(&[("listen", listen)])]).unwrap().listeners;
        let refused = listeners.iter().try_for_each(crate::config::Listener::refuse_beyond_loopback);
        refused.map_err(|error| error.to_string())
    };
    assert_eq!(
        words("kafka=0.0.0.0:9092").unwrap_err(),
        "the listener kafka=0.0.0.0:9092 can be reached by other machines and nobody has to authenticate \
         there; create a user first (`weir user create`), add --insecure if that is meant, or listen on 127.0.0.1"
    );
    assert_eq!(words("kafka=[::1]:9092,http=127.8.0.1:0"), Ok(()));
    // The default user may come from the same machine only, and everybody says who they are.
    assert_eq!(words("amqp=0.0.0.0:5672"), Ok(()));
}

#[test]
fn listeners_over_tls_need_a_certificate_and_its_key() {
    assert_eq!(
        refused(&[("listen", "amqps=127.0.0.1:5671")]),
        "the listener amqps=127.0.0.1:5671 needs a certificate; give --tls-certificate and --tls-key"
    );
    assert_eq!(refused(&[("tls-certificate", "c.pem")]), "TLS needs the certificate's key; give --tls-key");
    assert_eq!(refused(&[("tls-client-ca", "c.pem")]), "TLS needs a certificate; give --tls-certificate");
    let listen = ("listen", "kafka+tls=127.0.0.1:0,https=127.0.0.1:0");
    let config = config(&[flags(&[listen, ("tls-certificate", "c.pem"), ("tls-key", "k.pem")])]).unwrap();
    assert!(config.listeners.iter().all(|listener| listener.protocol.is_tls()));
    assert_eq!(config.tls.unwrap().client_ca, None);
}

#[test]
fn protocols_are_served_or_refused_by_name() {
    assert_eq!(
        refused(&[("listen", "openwire=127.0.0.1:61616")]),
        "listen 'openwire=127.0.0.1:61616': the protocol openwire is not served by this version; these are: kafka, \
         kafka+tls, amqp, amqps, amqp-management, http, https, cluster"
    );
    assert_eq!(
        refused(&[("listen", "kafak=127.0.0.1:9092")]),
        "listen 'kafak=127.0.0.1:9092': there is no protocol 'kafak'; did you mean kafka?"
    );
    assert_eq!(
        refused(&[("listen", "127.0.0.1:9092")]),
        "listen '127.0.0.1:9092': write it as PROTOCOL=ADDRESS, as in kafka=127.0.0.1:9092"
    );
}

#[test]
fn a_cluster_is_founded_or_joined() {
    let joins = [("peers", "-"), ("join", "10.0.0.1:9348,[::1]:9348")];
    let cluster = taken_but(&joins).cluster.expect("others");
    assert_eq!(
        cluster.join.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["10.0.0.1:9348", "[::1]:9348"]
    );
    assert!(cluster.peers.is_empty() && cluster.told.is_none());
    let refused = |changed: &[(&str, &str)]| refused_but(&[&joins, changed].concat());
    assert_eq!(refused_but(&joins[1..]), {
        "peers are the nodes that found a cluster, and join names some of one that is there; keep one of them"
    });
    assert_eq!(refused(&[("node-id", "-")]), {
        "join needs to know which node of the cluster this one is to be; give --node-id, with a number of its own"
    });
    assert_eq!(refused(&[("listen", "kafka=127.0.0.1:0")]), {
        "a cluster of several nodes needs an address at which they reach this one; give --listen cluster=ADDRESS, usually \
         with port 9348"
    });
    assert_eq!(refused_but(&[("peers", "-"), ("join", "10.0.0.1")]), {
        "join '10.0.0.1': '10.0.0.1' is not HOST:PORT, as in 127.0.0.1:9092"
    });
    assert_eq!(refused_but(&[("peers", "-"), ("join", "a:0")]), {
        "join 'a:0': nobody can connect to port 0; name the real one"
    });
    let many = ["a:1"; 65].join(",");
    assert_eq!(refused_but(&[("peers", "-"), ("join", &many)]), "join names 65 addresses; 64 are enough");
    // Alone, and to be joined by others, who have to be told where it is.
    let anywhere =
        [("peers", "-"), ("listen", "cluster=0.0.0.0:9348,http=127.0.0.1:0"), ("insecure", "true")];
    assert_eq!(refused_but(&anywhere), {
        "the other nodes have to be told where cluster=0.0.0.0:9348 is; give --advertise cluster=HOST:PORT, or listen on one \
         address"
    });
    let told = taken_but(&[&anywhere[..], &[("advertise", "cluster=a.example:9348")]].concat());
    let cluster = told.cluster.expect("it can be joined");
    assert_eq!(cluster.told.expect("it is told").to_string(), "a.example:9348");
    assert!(told.advertised.is_empty(), "clients are not told");
    assert!(cluster.peers.is_empty() && cluster.join.is_empty());
}

#[test]
fn what_is_advertised_must_be_listened_on_and_reachable() {
    let given = [("listen", "kafka=127.0.0.1:0"), ("advertise", "kafka=broker.example:9092")];
    let config = config(&[flags(&given)]).unwrap();
    let endpoint = &config.advertised[&super::Protocol::Kafka];
    assert_eq!((endpoint.host.as_str(), endpoint.port), ("broker.example", 9092));
    assert_eq!(
        refused(&[("listen", "http=127.0.0.1:0"), ("advertise", "kafka=broker.example:9092")]),
        "advertise 'kafka=broker.example:9092': there is no kafka listener; add one or remove it"
    );
    assert_eq!(
        refused(&[("advertise", "kafka=broker.example:0")]),
        "advertise 'kafka=broker.example:0': clients cannot connect to port 0; name the real one"
    );
    assert_eq!(
        refused(&[("advertise", "kafka=::1:9092")]),
        "advertise 'kafka=::1:9092': '::1:9092' is not HOST:PORT, as in 127.0.0.1:9092; put an IPv6 address in brackets"
    );
}

/// Flags of one of three nodes on one machine.
const ONE_OF_THREE: [(&str, &str); 3] = [
    ("node-id", "2"),
    ("listen", "cluster=127.0.0.1:9348,kafka=127.0.0.1:0"),
    ("peers", "1=127.0.0.1:19348,2=127.0.0.1:9348,3=127.0.0.1:39348"),
];

/// These flags with others in their place.
fn but(changed: &[(&str, &str)]) -> Vec<(&'static str, String)> {
    let other = |name| changed.iter().find(|(changed, _)| *changed == name).map(|(_, value)| *value);
    let mut flags: Vec<(&'static str, String)> =
        ONE_OF_THREE.iter().map(|(name, value)| (*name, other(*name).unwrap_or(value).to_owned())).collect();
    let known = |name| ONE_OF_THREE.iter().any(|(known, _)| *known == name);
    for (name, value) in changed.iter().filter(|(name, _)| !known(*name)) {
        flags.push((find(name).expect("a key").name, value.to_string()));
    }
    flags.retain(|(_, value)| value != "-");
    flags
}

#[track_caller]
fn refused_but(changed: &[(&str, &str)]) -> String {
    let flags = but(changed);
    refused(&flags.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>())
}

#[track_caller]
fn taken_but(changed: &[(&str, &str)]) -> Config {
    let given = but(changed);
    config(&[flags(&given.iter().map(|(name, value)| (*name, value.as_str())).collect::<Vec<_>>())])
        .unwrap_or_else(|error| panic!("{changed:?}: {error}"))
}

#[test]
fn the_listener_for_other_nodes_is_none_of_the_clients() {
    let config = taken_but(&[]);
    let cluster = config.cluster.expect("several nodes");
    assert_eq!(cluster.address.to_string(), "127.0.0.1:9348");
    assert_eq!(cluster.peers.keys().map(|node| node.0).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(cluster.peers[&weir_model::NodeId(3)].port, 39348);
    assert!(cluster.tls.is_none());
    assert_eq!(config.listeners.len(), 1);
}

#[test]
fn a_node_that_is_its_only_peer_is_alone_until_others_can_join_it() {
    let cluster = taken_but(&[("peers", "2=127.0.0.1:9348")]).cluster.expect("others can join it");
    assert_eq!(cluster.told.expect("as it is named").to_string(), "127.0.0.1:9348");
    assert!(taken_but(&[("peers", "2=127.0.0.1:9348"), ("listen", "kafka=127.0.0.1:0")]).cluster.is_none());
}

#[test]
fn peers_are_refused_with_the_one_that_is_wrong() {
    let peers = |peers: &str| refused_but(&[("peers", peers)]);
    assert_eq!(
        peers("127.0.0.1:9348"),
        "peers '127.0.0.1:9348': write it as ID=HOST:PORT, as in 1=10.0.0.1:9348"
    );
    assert_eq!(peers("0=a:1"), "peers '0=a:1': '0' is not a node's id, from 1 to 2147483646");
    assert_eq!(peers("1=a"), "peers '1=a': 'a' is not HOST:PORT, as in 127.0.0.1:9092");
    assert_eq!(peers("1=a:0"), "peers '1=a:0': nobody can connect to port 0; name the real one");
    assert_eq!(peers("2=a:1,2=b:1"), "peers '2=b:1': node 2 is named already; keep one");
    assert_eq!(peers("1=a:1,3=b:1"), "node-id is 2, but peers names 1, 3; this node has to be among them");
    assert_eq!(
        refused_but(&[("node-id", "-")]),
        "peers needs to know which of them this node is; give --node-id"
    );
}

#[test]
fn a_cluster_needs_a_listener_and_a_listener_a_cluster() {
    assert_eq!(
        refused_but(&[("listen", "kafka=127.0.0.1:0")]),
        "a cluster of several nodes needs an address at which they reach this one; give --listen cluster=ADDRESS, \
         usually with port 9348"
    );
    assert_eq!(
        refused_but(&[("listen", "cluster=127.0.0.1:1,cluster=127.0.0.1:2,kafka=127.0.0.1:0")]),
        "there is more than one listener for cluster; keep one"
    );
    assert_eq!(
        refused_but(&[("listen", "cluster=127.0.0.1:9348")]),
        "no listener is given; name at least one, as in --listen kafka=127.0.0.1:9092"
    );
    assert_eq!(
        refused_but(&[("listen", "kafka=127.0.0.1:0"), ("advertise", "cluster=a:1")]),
        "advertise 'cluster=a:1': there is no cluster listener; add one or remove it"
    );
}

#[test]
fn beyond_loopback_nodes_know_each_other_or_nobody_else_is_there() {
    let beyond = ("listen", "cluster=0.0.0.0:9348,kafka=127.0.0.1:0");
    assert_eq!(
        refused_but(&[beyond]),
        "the listener cluster=0.0.0.0:9348 can be reached by other machines, and whoever reaches it is taken for a node; \
         give --cluster-tls-certificate, --cluster-tls-key and --cluster-tls-ca, or add --insecure if only nodes are in \
         that network"
    );
    assert!(taken_but(&[beyond, ("insecure", "true")]).cluster.is_some());
    let files =
        [("cluster-tls-certificate", "c.pem"), ("cluster-tls-key", "k.pem"), ("cluster-tls-ca", "a.pem")];
    let secure = taken_but(&[beyond, files[0], files[1], files[2]]).cluster.expect("several nodes");
    assert_eq!(secure.tls.expect("files").ca, Path::new("a.pem"));
    assert_eq!(
        refused_but(&[files[1]]),
        "nodes know each other by a certificate, its key and the CA's certificate; give --cluster-tls-certificate and \
         --cluster-tls-ca as well"
    );
    assert_eq!(refused(&files), {
        "certificates between nodes need other nodes; give --listen cluster=ADDRESS, and --peers or --join, as well"
    });
}

#[test]
fn with_several_nodes_clients_have_to_be_told_where_this_one_is() {
    let everywhere = ("listen", "cluster=127.0.0.1:9348,kafka=0.0.0.0:9092");
    assert_eq!(
        refused_but(&[everywhere]),
        "clients of the other nodes have to be told where kafka=0.0.0.0:9092 is; give --advertise kafka=HOST:PORT, or \
         listen on one address"
    );
    assert!(taken_but(&[everywhere, ("advertise", "kafka=a.example:9092")]).cluster.is_some());
    // Clients of AMQP are not told of other nodes.
    taken_but(&[("listen", "cluster=127.0.0.1:9348,amqp=0.0.0.0:5672")]);
}

#[test]
fn a_zone_is_text_of_some_length() {
    assert_eq!(config(&[flags(&[("zone", "east")])]).unwrap().broker.zone.as_deref(), Some("east"));
    assert_eq!(config(&[]).unwrap().broker.zone, None);
    assert_eq!(refused(&[("zone", &"z".repeat(256))]), "zone has 256 bytes; at most 255 are allowed");
}
