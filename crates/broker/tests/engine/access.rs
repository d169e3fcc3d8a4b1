//! Users from their creation to their end, over restarts, and the snapshots that fronts ask.

use crate::support::*;
use bytes::Bytes;
use weir_broker::*;
use weir_model::access::{AccessChange, NamespaceMeta, PermissionMeta, UserLimits, UserMeta};
use weir_model::command::Refusal;
use weir_model::queue::QueueMeta;

async fn put_user(
    broker: &Broker,
    name: &str,
    password: &'static str,
    tags: &[&str],
) -> Result<(), AccessError> {
    let passwords = broker.hash_password(Bytes::from_static(password.as_bytes())).await?;
    let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
    let user = UserMeta { name: name.into(), passwords, tags, limits: UserLimits::default() };
    broker.change_access(AccessChange::PutUser { user, new: true }).await
}

async fn grant(broker: &Broker, user: &str, namespace: &str) -> Result<(), AccessError> {
    let permission = PermissionMeta::everything(user, namespace);
    broker.change_access(AccessChange::PutPermission { permission }).await
}

async fn namespace(broker: &Broker, name: &str) -> Result<(), AccessError> {
    let namespace = NamespaceMeta { name: name.into(), ..NamespaceMeta::default() };
    broker.change_access(AccessChange::PutNamespace { namespace, new: true }).await
}

fn refused<T>(refusal: Refusal) -> Result<T, AccessError> {
    Err(AccessError::Refused(refusal))
}

#[tokio::test(start_paused = true)]
async fn users_outlive_restarts_and_open_with_their_passwords_alone() {
    let mut world = World::started(1).await;
    let broker = world.broker();
    assert_eq!(broker.access().anonymous().unwrap().name(), "guest");
    let guest = broker.authenticate("guest", Bytes::from_static(b"guest"), Peer::Loopback).await.unwrap();
    assert!(guest.is_administrator());
    put_user(broker, "ann", "secret", &["monitoring"]).await.unwrap();
    grant(broker, "ann", "/").await.unwrap();
    assert_eq!(put_user(broker, "ann", "other", &[]).await, refused(Refusal::UserExists("ann".into())));
    world.restart().await;
    let broker = world.broker();
    assert!(broker.access().anonymous().is_none());
    for _ in 0..2 {
        let ann = broker.authenticate("ann", Bytes::from_static(b"secret"), Peer::Remote).await.unwrap();
        assert!(ann.may(Action::Read, "/", "orders") && !ann.is_administrator());
        let wrong = broker.authenticate("ann", Bytes::from_static(b"Secret"), Peer::Remote).await;
        assert_eq!(wrong.unwrap_err(), Denied::WrongPassword("ann".into()));
    }
    let unknown = broker.authenticate("eve", Bytes::from_static(b"secret"), Peer::Remote).await;
    assert_eq!(unknown.unwrap_err(), Denied::UnknownUser("eve".into()));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_the_same_until_something_changes() {
    let mut world = World::started(2).await;
    let broker = world.broker();
    let mut changed = broker.on_access_change();
    let before = broker.access();
    world.create("t", 1).await;
    assert!(broker.access().is_same(&before));
    put_user(broker, "ann", "secret", &[]).await.unwrap();
    changed.changed().await.unwrap();
    let after = broker.access();
    assert!(!after.is_same(&before) && broker.access().is_same(&after));
    let ann = broker.authenticate("ann", Bytes::from_static(b"secret"), Peer::Loopback).await.unwrap();
    broker.change_access(AccessChange::DeleteUser { name: "ann".into() }).await.unwrap();
    // What was remembered of the password opens nothing any more.
    let gone = broker.authenticate("ann", Bytes::from_static(b"secret"), Peer::Loopback).await;
    assert_eq!(gone.unwrap_err(), Denied::UnknownUser("ann".into()));
    assert!(ann.renewed(&broker.access()).is_err());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_may_not_be_stored_is_refused_with_words() {
    let mut world = World::started(3).await;
    let broker = world.broker();
    let words = |result: Result<(), AccessError>| result.unwrap_err().to_string();
    assert!(words(put_user(broker, "", "x", &[]).await).contains("the user name is empty"));
    assert!(words(put_user(broker, "ann", "", &[]).await).contains("the password is blank"));
    assert!(words(namespace(broker, "a\nb").await).contains("control character"));
    let permission = PermissionMeta { read: "(".into(), ..PermissionMeta::everything("guest", "/") };
    assert!(
        words(broker.change_access(AccessChange::PutPermission { permission }).await)
            .contains("unclosed group")
    );
    assert_eq!(words(grant(broker, "ann", "/").await), "there is no user 'ann'");
    assert_eq!(words(grant(broker, "guest", "shop").await), "there is no namespace 'shop'");
    let last = broker.change_access(AccessChange::DeleteUser { name: "guest".into() }).await;
    assert_eq!(last, refused(Refusal::LastAdministrator("guest".into())));
    // None of that made anybody authenticate.
    assert!(broker.access().anonymous().is_some());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_with_everything_in_it() {
    let mut world = World::started(4).await;
    let broker = world.broker();
    let queue = || QueueMeta { durable: true, ..QueueMeta::default() };
    assert!(broker.create_queue("shop", "orders", queue()).await.is_err());
    namespace(broker, "shop").await.unwrap();
    grant(broker, "guest", "shop").await.unwrap();
    broker.create_queue("shop", "orders", queue()).await.unwrap();
    broker.create_queue("/", "orders", queue()).await.unwrap();
    let left = AccessChange::DeleteNamespace { name: "shop".into() };
    assert_eq!(broker.change_access(left).await, refused(Refusal::NamespaceInUse("shop".into())));
    broker.delete_namespace("shop").await.unwrap();
    assert!(broker.access().namespace("shop").is_none());
    assert!(!broker.access().identify("guest", Peer::Loopback).unwrap().may_enter("shop"));
    assert!(broker.find_queue("shop", "orders").unwrap().is_none());
    assert!(broker.find_queue("/", "orders").unwrap().is_some());
    assert_eq!(broker.delete_namespace("shop").await, refused(Refusal::UnknownNamespace("shop".into())));
    assert_eq!(broker.delete_namespace("/").await, refused(Refusal::NamespaceInUse("/".into())));
    world.restart().await;
    assert!(world.broker().access().namespace("shop").is_none());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn scram_is_answered_alike_for_those_who_are_there_and_those_who_are_not() {
    let mut world = World::started(5).await;
    let broker = world.broker();
    put_user(broker, "ann", "secret", &[]).await.unwrap();
    for hash in [ScramHash::Sha256, ScramHash::Sha512] {
        let known = broker.scram_credential("ann", hash);
        let unknown = broker.scram_credential("eve", hash);
        assert_eq!((known.hash, known.iterations), (hash, unknown.iterations));
        assert_eq!(known.salt.len(), unknown.salt.len());
        assert_eq!(unknown, broker.scram_credential("eve", hash));
    }
    world.stop().await;
}
