use weir_kafka_wire::{ApiKey, ApiVersion, ApiVersionsResponse, Message};

use super::{TABLE, find};

fn advertised() -> Vec<ApiVersion> {
    TABLE.iter().map(|api| ApiVersion::from(api.key)).collect()
}

fn range(key: ApiKey) -> (i16, i16) {
    let entry = advertised().into_iter().find(|entry| entry.api_key == key as i16).expect("it is served");
    (entry.min_version, entry.max_version)
}

#[test]
fn the_table_has_each_api_once_by_rising_key() {
    assert!(TABLE.windows(2).all(|pair| pair[0].key < pair[1].key));
    for (index, api) in TABLE.iter().enumerate() {
        assert_eq!(find(api.key as i16).map(|(found, _)| found), Some(index));
    }
    assert!(find(-1).is_none() && find(24).is_none());
}

/// librdkafka before 2.6 stops compressing, without a word, for a broker whose Produce begins above 0.
#[test]
fn trap_produce_is_advertised_from_version_0_on() {
    assert_eq!(range(ApiKey::Produce), (0, 13));
}

/// kafka-go before 0.4.48 and brod join with versions 0 and 1 and know no later one.
#[test]
fn trap_join_group_is_served_from_version_0_on() {
    assert_eq!(range(ApiKey::JoinGroup).0, 0);
}

/// Produce 13 and OffsetCommit and OffsetFetch 10 name topics by id, which a client learns from
/// Metadata 10 and later.
#[test]
fn trap_versions_that_need_topic_ids_come_with_metadata_that_tells_them() {
    assert!(range(ApiKey::Produce).1 >= 13 && range(ApiKey::Fetch).1 >= 13);
    assert!(range(ApiKey::OffsetCommit).1 >= 10 && range(ApiKey::OffsetFetch).1 >= 10);
    assert!(range(ApiKey::Metadata).1 >= 12);
}

/// Clients that are told of transactions, delegation tokens or telemetry use them.
#[test]
fn what_is_not_served_is_not_advertised() {
    let keys: Vec<i16> = advertised().iter().map(|entry| entry.api_key).collect();
    for unserved in [24, 25, 26, 28, 38, 68, 69, 71, 72, 76, 78] {
        assert!(!keys.contains(&unserved), "API key {unserved}");
    }
}

/// librdkafka before 2.2 (the one in Debian) skips tagged fields of this response wrongly, so that one
/// tagged field keeps it from connecting at all.
#[test]
fn trap_api_versions_carries_no_tagged_field() {
    let response = ApiVersionsResponse { api_keys: advertised(), ..Default::default() };
    for version in 3..=4 {
        let body = response.encode(version).unwrap().concat();
        // error, compact array, and for each entry three numbers and its empty tags; throttle time; tags
        let expected = 2 + 1 + TABLE.len() * 7 + 4 + 1;
        assert_eq!(body.len(), expected, "version {version}");
        assert_eq!(body.last(), Some(&0), "no tagged fields at the end");
    }
}
