use super::{FrameBuffer, FrameError, LENGTH_BYTES, ROOM_BYTES_MIN};
use bytes::BufMut;
use proptest::prelude::*;

fn framed(body: &[u8]) -> Vec<u8> {
    let mut frame = (body.len() as i32).to_be_bytes().to_vec();
    frame.extend_from_slice(body);
    frame
}

/// Reads `stream` into `buffer` the way a socket does, at most `step` bytes at a time.
fn read_from(buffer: &mut FrameBuffer, stream: &mut &[u8], step: usize) {
    let (room, most) = buffer.room();
    let count = most.min(step).min(stream.len());
    room.put_slice(&stream[..count]);
    *stream = &stream[count..];
}

#[test]
fn frames_come_out_whole_and_in_order() {
    let mut buffer = FrameBuffer::new(1 << 20);
    buffer.extend(&framed(b"one"));
    buffer.extend(&framed(b""));
    buffer.extend(&framed(b"three")[..6]);
    assert_eq!(buffer.next_frame().unwrap().unwrap(), "one");
    assert_eq!(buffer.next_frame().unwrap().unwrap(), "");
    assert_eq!(buffer.next_frame(), Ok(None));
    assert!(!buffer.has_frame());
    buffer.extend(&framed(b"three")[6..]);
    assert!(buffer.has_frame());
    assert_eq!(buffer.next_frame().unwrap().unwrap(), "three");
    assert!(buffer.is_empty());
}

#[test]
fn a_length_below_zero_or_above_the_limit_is_an_error_before_anything_follows_it() {
    let mut buffer = FrameBuffer::new(100);
    buffer.extend(&(-1i32).to_be_bytes());
    assert_eq!(buffer.next_frame(), Err(FrameError::Negative(-1)));
    let mut buffer = FrameBuffer::new(100);
    buffer.extend(&101i32.to_be_bytes());
    assert!(buffer.has_frame());
    assert_eq!(buffer.next_frame(), Err(FrameError::TooLarge { announced: 101, limit: 100 }));
}

#[test]
fn memory_follows_what_arrived_and_not_what_was_announced() {
    let mut buffer = FrameBuffer::new(100 << 20);
    buffer.extend(&(100i32 << 20).to_be_bytes());
    let (room, most) = buffer.room();
    assert!(
        most <= ROOM_BYTES_MIN && room.capacity() <= 4 * ROOM_BYTES_MIN,
        "{} of capacity",
        room.capacity()
    );
    buffer.extend(&[0; 20_000]);
    let (room, _) = buffer.room();
    assert!(room.capacity() <= 100_000, "{} of capacity", room.capacity());
}

#[test]
fn a_connection_that_sent_large_frames_gets_room_for_the_next_at_once() {
    let mut buffer = FrameBuffer::new(100 << 20);
    buffer.extend(&framed(&vec![7; 1 << 20]));
    let frame = buffer.next_frame().unwrap().unwrap();
    assert_eq!(frame.len(), 1 << 20);
    buffer.extend(&(1i32 << 20).to_be_bytes());
    let (_, most) = buffer.room();
    assert_eq!(most, 1 << 20, "reads up to the end of the frame and not beyond");
}

#[test]
fn an_empty_buffer_can_give_its_memory_back() {
    let mut buffer = FrameBuffer::new(100);
    buffer.extend(&framed(b"frame"));
    let frame = buffer.next_frame().unwrap().unwrap();
    buffer.release();
    assert_eq!(frame, "frame");
    assert_eq!(buffer.bytes.capacity(), 0);
}

proptest! {
    #[test]
    fn any_cut_of_the_stream_gives_the_same_frames(
        bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40_000), 1..6),
        steps in prop::collection::vec(1usize..50_000, 1..40),
    ) {
        let stream: Vec<u8> = bodies.iter().flat_map(|body| framed(body)).collect();
        let mut rest = stream.as_slice();
        let mut buffer = FrameBuffer::new(1 << 20);
        let mut frames = Vec::new();
        let mut steps = steps.iter().cycle();
        while !rest.is_empty() || buffer.has_frame() {
            read_from(&mut buffer, &mut rest, *steps.next().unwrap());
            while let Some(frame) = buffer.next_frame().unwrap() {
                frames.push(frame.to_vec());
            }
        }
        prop_assert_eq!(frames, bodies);
        prop_assert!(buffer.is_empty());
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut buffer = FrameBuffer::new(64);
        buffer.extend(&bytes);
        for _ in 0..bytes.len() / LENGTH_BYTES + 1 {
            if !matches!(buffer.next_frame(), Ok(Some(_))) {
                break;
            }
        }
    }
}
