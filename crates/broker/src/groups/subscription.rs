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
