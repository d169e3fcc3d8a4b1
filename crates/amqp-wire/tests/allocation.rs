//! What a message takes from the allocator on its way through, counted by an allocator that passes on to the
//! system's: nothing for itself when it comes in, and a share of a buffer when it goes out.

use bytes::{Bytes, BytesMut};
use weir_amqp_wire::methods::basic;
use weir_amqp_wire::{
    Assembler, BasicProperties, Command, Frame, Method, Parsed, ShortStr, Table, Value, Writer,
};
use weir_testing::allocations::{Counting, cost};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const FRAME_MAX: u32 = 131_072;
const MESSAGES: usize = 100;

fn properties() -> BasicProperties {
    BasicProperties {
        content_type: Some(ShortStr::from_static("application/json")),
        delivery_mode: Some(2),
        message_id: Some(ShortStr::from_static("0123456789")),
        ..Default::default()
    }
}

fn published(body_bytes: usize) -> BytesMut {
    let mut writer = Writer::new(FRAME_MAX);
    let publish = basic::Publish {
        exchange: ShortStr::from_static("events"),
        routing_key: ShortStr::from_static("orders.new"),
        ..Default::default()
    };
    for _ in 0..MESSAGES {
        writer.content(1, &publish, &properties(), &Bytes::from(vec![7; body_bytes])).unwrap();
    }
    BytesMut::from(&writer.into_contiguous()[..])
}

fn receive(buffer: &mut BytesMut, mut each: impl FnMut(Command)) {
    let mut assembler = Assembler::new(u64::MAX);
    while let Ok(Parsed::Frame(frame)) = Frame::parse(buffer, FRAME_MAX) {
        if let Some(command) = assembler.push(frame).unwrap() {
            each(command);
        }
    }
}

#[test]
fn a_published_message_allocates_nothing() {
    for body_bytes in [0, 16, 1_000, 100_000] {
        let mut buffer = published(body_bytes);
        let mut messages = 0;
        let (allocations, _) = cost(|| receive(&mut buffer, |_| messages += 1));
        assert_eq!(messages, MESSAGES);
        // The buffer's shared count, when it is first shared.
        assert!(allocations <= 1, "{allocations} allocations for bodies of {body_bytes} bytes");
    }
}

#[test]
fn a_delivered_message_shares_its_buffer_with_others() {
    for (body_bytes, allocations_max) in [(16, 20), (1_000, 20), (100_000, 300)] {
        let body = Bytes::from(vec![7; body_bytes]);
        let properties = properties();
        let tag = ShortStr::from_static("amq.ctag-1");
        let (allocations, bytes) = cost(|| {
            let mut writer = Writer::new(FRAME_MAX);
            for delivery_tag in 0..MESSAGES as u64 {
                let deliver =
                    basic::Deliver { consumer_tag: tag.clone(), delivery_tag, ..Default::default() };
                writer.content(1, &deliver, &properties, &body).unwrap();
            }
            writer.take()
        });
        assert!(allocations <= allocations_max, "{allocations} allocations for bodies of {body_bytes} bytes");
        let copied = if body_bytes < 2_048 { body_bytes } else { 0 };
        assert!(bytes < 3 * MESSAGES * (copied + 300), "{bytes} bytes for bodies of {body_bytes} bytes");
    }
}

/// Values are larger in memory than the fewest bytes they take on the wire, and lists grow by doubling.
const AMPLIFICATION_MAX: usize = 128;

#[test]
fn garbage_takes_a_bounded_multiple_of_its_length() {
    let mut state = 1u32;
    let mut random = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 16) % below) as u8
    };
    // An array of nothing but nothing is the densest value.
    let mut dense = b"\0A\0\0\x0f\x9a".to_vec();
    dense.resize(4_000, b'V');
    assert!(matches!(Table::decode(dense.clone().into()).unwrap().get(""), Some(Value::Array(_))));
    let mut inputs = vec![dense, b"\0V".repeat(2_000)];
    let tags = b"tbBsuIilLfdDSTFAVx";
    inputs.extend((0..200).map(|_| {
        let octet =
            |number: u8| if number < 200 { number % 4 } else { tags[usize::from(number) % tags.len()] };
        (0..4_000).map(|_| octet(random(256))).collect()
    }));
    let mut worst = 0;
    for input in inputs {
        let input = Bytes::from(input);
        let (_, table) = cost(|| Table::decode(input.clone()));
        let (_, method) = cost(|| Method::decode(input.clone()));
        worst = worst.max(table).max(method);
    }
    assert!(worst <= AMPLIFICATION_MAX * 4_000, "{worst} bytes for 4000");
    println!("at most {worst} bytes for 4000");
}
