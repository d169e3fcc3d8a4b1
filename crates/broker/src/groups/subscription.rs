//! Which topics a member of a consumer group reads: the head of the data that consumers send with
//! their protocols (Kafka's `ConsumerProtocolSubscription`). It belongs to the clients; the broker
//! only looks at it to protect positions that are in use, and takes what it cannot read as unknown.

/// Most topics of one member that are looked at.
const TOPICS_MAX: usize = 1_000_000;

/// The topics in a subscription; none if these bytes are not one.
pub fn subscribed_topics(data: &[u8]) -> Option<Vec<&str>> {
    let (version, rest) = data.split_first_chunk::<2>()?;
    if i16::from_be_bytes(*version) < 0 {
        return None;
    }
    let (count, mut rest) = rest.split_first_chunk::<4>()?;
    let count = usize::try_from(i32::from_be_bytes(*count)).ok()?;
    // A name takes at least its two bytes of length.
    if count > TOPICS_MAX || count > rest.len() / 2 {
        return None;
    }
    let mut topics = Vec::with_capacity(count);
    for _ in 0..count {
        let (length, after) = rest.split_first_chunk::<2>()?;
        let length = usize::try_from(i16::from_be_bytes(*length)).ok()?;
        let (name, after) = after.split_at_checked(length)?;
        topics.push(std::str::from_utf8(name).ok()?);
        rest = after;
    }
    Some(topics)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::subscribed_topics;

    #[test]
    fn topics_are_read_and_what_follows_is_left_alone() {
        let data = b"\x00\x01\x00\x00\x00\x02\x00\x01a\x00\x02bc\xff\xff\xff\xff more";
        assert_eq!(subscribed_topics(data), Some(vec!["a", "bc"]));
        assert_eq!(subscribed_topics(b"\x00\x00\x00\x00\x00\x00"), Some(vec![]));
    }

    #[test]
    fn what_is_not_a_subscription_is_unknown() {
        for data in [&b""[..], b"\x00", b"\x00\x00\x7f\xff\xff\xff", b"\x00\x00\x00\x00\x00\x01\x00\x05a"] {
            assert_eq!(subscribed_topics(data), None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(data in prop::collection::vec(any::<u8>(), 0..64)) {
            subscribed_topics(&data);
        }
    }
}
