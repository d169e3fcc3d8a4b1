//! Who clients are, and what they may do.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha512};
use weir_broker::Broker;
use weir_kafka_wire::messages::metadata::MetadataRequestTopic;
use weir_kafka_wire::{
    ApiVersionsRequest, DeleteTopicsRequest, DescribeClusterRequest, DescribeLogDirsRequest, ErrorCode,
    FindCoordinatorRequest, HeartbeatRequest, InitProducerIdRequest, ListGroupsRequest, MetadataRequest,
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest,
};
use weir_model::access::{AccessChange, PermissionMeta, UserLimits, UserMeta};

use crate::common::{Client, Served, batch, create_topic, serve, texts};

async fn put_user(broker: &Broker, name: &str, password: &'static str, tags: &[&str]) {
    let passwords = broker.hash_password(Bytes::from_static(password.as_bytes())).await.unwrap();
    let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
    let user = UserMeta { name: name.into(), passwords, tags, limits: UserLimits::default() };
    broker.change_access(AccessChange::PutUser { user, new: true }).await.unwrap();
}

async fn grant(broker: &Broker, user: &str, configure: &str, write: &str, read: &str) {
    let permission = PermissionMeta {
        user: user.into(),
        namespace: "/".into(),
        configure: configure.into(),
        write: write.into(),
        read: read.into(),
    };
    broker.change_access(AccessChange::PutPermission { permission }).await.unwrap();
}

/// A broker with an administrator `ops`, and `shop`, who writes orders and reads prices.
async fn with_users() -> Served {
    let served = serve().await;
    put_user(&served.broker, "ops", "operating", &["administrator"]).await;
    grant(&served.broker, "ops", ".*", ".*", ".*").await;
    put_user(&served.broker, "shop", "selling", &[]).await;
    grant(&served.broker, "shop", "", "^orders$", "^(prices|readers)$").await;
    served
}

async fn handshake(client: &mut Client, mechanism: &'static str) -> ErrorCode {
    client.call(1, &SaslHandshakeRequest { mechanism: mechanism.into() }).await.error_code
}

async fn say(client: &mut Client, bytes: impl Into<Bytes>) -> SaslAuthenticateResponse {
    client.call(2, &SaslAuthenticateRequest { auth_bytes: bytes.into() }).await
}

/// A client that is authenticated by PLAIN.
async fn as_user(served: &Served, user: &str, password: &str) -> Client {
    let mut client = served.connect().await;
    assert_eq!(handshake(&mut client, "PLAIN").await, ErrorCode::NONE);
    let answer = say(&mut client, format!("\0{user}\0{password}")).await;
    assert_eq!(answer.error_code, ErrorCode::NONE, "{:?}", answer.error_message);
    client
}

fn named(name: &str) -> MetadataRequest {
    let topic = MetadataRequestTopic { name: Some(name.into()), ..Default::default() };
    MetadataRequest { topics: Some(vec![topic]), allow_auto_topic_creation: true, ..Default::default() }
}

async fn metadata_of(client: &mut Client, name: &str) -> ErrorCode {
    client.call(9, &named(name)).await.topics[0].error_code
}

#[tokio::test]
async fn nobody_has_to_authenticate_until_there_is_another_user() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("orders", 1, &[]).await;
    client.append("orders", 0, batch(&["one"])).await;
    put_user(&served.broker, "ann", "secret", &["administrator"]).await;
    // The connection is the same, and may do nothing from here on but find that out.
    let hello =
        ApiVersionsRequest { client_software_name: "test".into(), client_software_version: "1".into() };
    assert_eq!(client.call(3, &hello).await.error_code, ErrorCode::NONE);
    assert_eq!(metadata_of(&mut client, "orders").await, ErrorCode::TOPIC_AUTHORIZATION_FAILED);
    let produced = client.produce("orders", 0, batch(&["two"])).await;
    assert_eq!(produced.error_code, ErrorCode::TOPIC_AUTHORIZATION_FAILED);
    assert_eq!(client.fetch("orders", 0, 0).await.error_code, ErrorCode::TOPIC_AUTHORIZATION_FAILED);
    let created = client.call(7, &create_topic("new", 1, &[])).await;
    assert_eq!(created.topics[0].error_code, ErrorCode::TOPIC_AUTHORIZATION_FAILED);
    let cluster = client.call(0, &DescribeClusterRequest { endpoint_type: 1, ..Default::default() }).await;
    assert_eq!(cluster.error_code, ErrorCode::CLUSTER_AUTHORIZATION_FAILED);
    let producer = client.call(4, &InitProducerIdRequest::default()).await;
    assert_eq!(producer.error_code, ErrorCode::CLUSTER_AUTHORIZATION_FAILED);
    let coordinator = client.call(3, &FindCoordinatorRequest { key: "g".into(), ..Default::default() }).await;
    assert_eq!(coordinator.error_code, ErrorCode::GROUP_AUTHORIZATION_FAILED);
    let all = client.call(9, &MetadataRequest { topics: None, ..Default::default() }).await;
    assert!(all.topics.is_empty());
    // It may still say who it is.
    assert_eq!(handshake(&mut client, "PLAIN").await, ErrorCode::NONE);
    assert_eq!(say(&mut client, "\0guest\0guest").await.error_code, ErrorCode::NONE);
    assert_eq!(texts(&client.fetch("orders", 0, 0).await), ["one"]);
    served.stop().await;
}

#[tokio::test]
async fn plain_takes_the_right_password_and_closes_behind_a_wrong_one() {
    let served = with_users().await;
    as_user(&served, "shop", "selling").await;
    for wrong in
        ["\0shop\0buying", "\0eve\0selling", "\0shop\0", "\0\0selling", "shop\0selling", "ops\0shop\0selling"]
    {
        let mut client = served.connect().await;
        assert_eq!(handshake(&mut client, "PLAIN").await, ErrorCode::NONE);
        let answer = say(&mut client, wrong).await;
        assert_eq!(answer.error_code, ErrorCode::SASL_AUTHENTICATION_FAILED, "{wrong:?}");
        assert!(answer.error_message.unwrap().starts_with("Authentication failed"), "{wrong:?}");
        assert!(client.is_closed().await, "{wrong:?}");
    }
    served.stop().await;
}

#[tokio::test]
async fn a_mechanism_that_is_not_served_is_refused_with_those_that_are() {
    let served = with_users().await;
    let mut client = served.connect().await;
    let answer = client.call(1, &SaslHandshakeRequest { mechanism: "GSSAPI".into() }).await;
    assert_eq!(answer.error_code, ErrorCode::UNSUPPORTED_SASL_MECHANISM);
    assert_eq!(answer.mechanisms, ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]);
    assert!(client.is_closed().await);
    served.stop().await;
}

#[tokio::test]
async fn what_is_out_of_place_is_said_to_be() {
    let served = with_users().await;
    let mut client = served.connect().await;
    let early = say(&mut client, "\0shop\0selling").await;
    assert_eq!(early.error_code, ErrorCode::ILLEGAL_SASL_STATE);
    assert!(client.is_closed().await);
    let mut client = as_user(&served, "shop", "selling").await;
    assert_eq!(handshake(&mut client, "PLAIN").await, ErrorCode::ILLEGAL_SASL_STATE);
    assert_eq!(metadata_of(&mut client, "orders").await, ErrorCode::TOPIC_AUTHORIZATION_FAILED);
    served.stop().await;
}

/// Clients from before SaslAuthenticate send bare frames behind a handshake of version 0.
#[tokio::test]
async fn trap_a_handshake_of_version_0_is_followed_by_bare_frames() {
    let served = with_users().await;
    let bare = |message: &str| [&(message.len() as i32).to_be_bytes(), message.as_bytes()].concat();
    let mut client = served.connect().await;
    let request = SaslHandshakeRequest { mechanism: "PLAIN".into() };
    assert_eq!(client.call(0, &request).await.error_code, ErrorCode::NONE);
    client.send_raw(&bare("\0shop\0selling")).await;
    assert_eq!(client.receive_frame().await.unwrap(), "");
    assert_eq!(
        client.produce("orders", 0, batch(&["x"])).await.error_code,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
    );
    let mut client = served.connect().await;
    assert_eq!(client.call(0, &request).await.error_code, ErrorCode::NONE);
    client.send_raw(&bare("\0shop\0buying")).await;
    assert!(client.is_closed().await);
    served.stop().await;
}

/// The client's side of SCRAM, by the specification and nothing of the broker's.
macro_rules! scram {
    ($name:ident, $hash:ty) => {
        async fn $name(client: &mut Client, user: &str, password: &str) -> SaslAuthenticateResponse {
            let hmac = |key: &[u8], message: &[u8]| -> Vec<u8> {
                let mac = Hmac::<$hash>::new_from_slice(key).unwrap();
                mac.chain_update(message).finalize().into_bytes().to_vec()
            };
            let bare = format!("n={user},r=clientnonce");
            let challenge = say(client, format!("n,,{bare}")).await;
            assert_eq!(challenge.error_code, ErrorCode::NONE);
            let challenge = String::from_utf8(challenge.auth_bytes.to_vec()).unwrap();
            let field = |name: &str| challenge.split(',').find_map(|part| part.strip_prefix(name)).unwrap();
            let (nonce, salt) = (field("r="), STANDARD.decode(field("s=")).unwrap());
            assert!(nonce.starts_with("clientnonce") && nonce.len() > 30);
            let mut salted = vec![0; <$hash>::output_size()];
            pbkdf2::pbkdf2_hmac::<$hash>(
                password.as_bytes(),
                &salt,
                field("i=").parse().unwrap(),
                &mut salted,
            );
            let client_key = hmac(&salted, b"Client Key");
            let without_proof = format!("c=biws,r={nonce}");
            let messages = format!("{bare},{challenge},{without_proof}");
            let signature = hmac(&<$hash>::digest(&client_key), messages.as_bytes());
            let proof: Vec<u8> = client_key.iter().zip(signature).map(|(key, signed)| key ^ signed).collect();
            let answer = say(client, format!("{without_proof},p={}", STANDARD.encode(proof))).await;
            if answer.error_code.is_none() {
                let expected = hmac(&hmac(&salted, b"Server Key"), messages.as_bytes());
                assert_eq!(answer.auth_bytes, format!("v={}", STANDARD.encode(expected)));
            }
            answer
        }
    };
}

scram!(scram_sha_256, Sha256);
scram!(scram_sha_512, Sha512);

#[tokio::test]
async fn scram_proves_both_sides() {
    let served = with_users().await;
    let mut client = served.connect().await;
    assert_eq!(handshake(&mut client, "SCRAM-SHA-256").await, ErrorCode::NONE);
    assert_eq!(scram_sha_256(&mut client, "shop", "selling").await.error_code, ErrorCode::NONE);
    let mut client = served.connect().await;
    assert_eq!(handshake(&mut client, "SCRAM-SHA-512").await, ErrorCode::NONE);
    assert_eq!(scram_sha_512(&mut client, "ops", "operating").await.error_code, ErrorCode::NONE);
    client.create_topic("orders", 1, &[]).await;
    // Somebody who is not there, and somebody whose password is kept in another form, are answered alike.
    for (user, password) in [("shop", "buying"), ("eve", "selling"), ("guest", "guest")] {
        let mut client = served.connect().await;
        assert_eq!(handshake(&mut client, "SCRAM-SHA-256").await, ErrorCode::NONE);
        let answer = scram_sha_256(&mut client, user, password).await;
        assert_eq!(answer.error_code, ErrorCode::SASL_AUTHENTICATION_FAILED, "{user}");
        assert!(answer.error_message.unwrap().contains("SCRAM-SHA-256"));
        assert!(client.is_closed().await);
    }
    served.stop().await;
}

#[tokio::test]
async fn a_user_may_do_what_its_permissions_say() {
    let served = with_users().await;
    let mut ops = as_user(&served, "ops", "operating").await;
    for name in ["orders", "prices", "secrets"] {
        ops.create_topic(name, 1, &[]).await;
    }
    ops.append("prices", 0, batch(&["3"])).await;
    let mut shop = as_user(&served, "shop", "selling").await;
    shop.append("orders", 0, batch(&["apples"])).await;
    assert_eq!(texts(&shop.fetch("prices", 0, 0).await), ["3"]);
    for name in ["prices", "secrets", "none"] {
        let produced = shop.produce(name, 0, batch(&["x"])).await;
        assert_eq!(produced.error_code, ErrorCode::TOPIC_AUTHORIZATION_FAILED, "{name}");
    }
    for name in ["orders", "secrets", "none"] {
        assert_eq!(shop.fetch(name, 0, 0).await.error_code, ErrorCode::TOPIC_AUTHORIZATION_FAILED, "{name}");
    }
    assert_eq!(metadata_of(&mut shop, "orders").await, ErrorCode::NONE);
    assert_eq!(metadata_of(&mut shop, "secrets").await, ErrorCode::TOPIC_AUTHORIZATION_FAILED);
    let listed = shop.call(9, &MetadataRequest { topics: None, ..Default::default() }).await.topics;
    let mut listed: Vec<String> =
        listed.iter().map(|topic| topic.name.as_ref().unwrap().to_string()).collect();
    listed.sort();
    assert_eq!(listed, ["orders", "prices"]);
    // Topics are made by those who may configure them, by whichever request.
    let deleted =
        shop.call(5, &DeleteTopicsRequest { topic_names: vec!["orders".into()], ..Default::default() }).await;
    assert_eq!(deleted.responses[0].error_code, ErrorCode::TOPIC_AUTHORIZATION_FAILED);
    grant(&served.broker, "shop", "^made$", "^(orders|made|unmade)$", "^(prices|readers)$").await;
    assert_eq!(metadata_of(&mut shop, "made").await, ErrorCode::NONE);
    assert_eq!(metadata_of(&mut shop, "unmade").await, ErrorCode::TOPIC_AUTHORIZATION_FAILED);
    let logs = shop.call(4, &DescribeLogDirsRequest::default()).await;
    assert_eq!(logs.error_code, ErrorCode::CLUSTER_AUTHORIZATION_FAILED);
    assert_eq!(ops.call(4, &DescribeLogDirsRequest::default()).await.error_code, ErrorCode::NONE);
    served.stop().await;
}

#[tokio::test]
async fn groups_are_resources_too() {
    let served = with_users().await;
    let mut shop = as_user(&served, "shop", "selling").await;
    for (group, expected) in [("readers", ErrorCode::NONE), ("others", ErrorCode::GROUP_AUTHORIZATION_FAILED)]
    {
        let found = shop.call(3, &FindCoordinatorRequest { key: group.into(), ..Default::default() }).await;
        assert_eq!(found.error_code, expected, "{group}");
        let beat = HeartbeatRequest { group_id: group.into(), ..Default::default() };
        let expected = if expected.is_none() { ErrorCode::UNKNOWN_MEMBER_ID } else { expected };
        assert_eq!(shop.call(3, &beat).await.error_code, expected, "{group}");
    }
    assert!(shop.call(4, &ListGroupsRequest::default()).await.groups.is_empty());
    served.stop().await;
}

#[tokio::test]
async fn changes_reach_connections_that_are_open() {
    let served = with_users().await;
    let mut ops = as_user(&served, "ops", "operating").await;
    ops.create_topic("orders", 1, &[]).await;
    let mut shop = as_user(&served, "shop", "selling").await;
    shop.append("orders", 0, batch(&["apples"])).await;
    grant(&served.broker, "shop", "", "", "^orders$").await;
    let produced = shop.produce("orders", 0, batch(&["pears"])).await;
    assert_eq!(produced.error_code, ErrorCode::TOPIC_AUTHORIZATION_FAILED);
    assert_eq!(texts(&shop.fetch("orders", 0, 0).await), ["apples"]);
    served.broker.change_access(AccessChange::DeleteUser { name: "shop".into() }).await.unwrap();
    shop.send(9, &named("orders")).await;
    assert!(shop.is_closed().await);
    served.stop().await;
}
