use std::task::{Context, Waker};

use tokio::sync::oneshot;
use weir_broker::Piece;

use super::{Answer, Begun, InFlightLimits, Lane, Pipeline};

const LIMITS: InFlightLimits = InFlightLimits { requests: 4, bytes: 1000 };

fn frame(text: &'static str) -> Answer {
    Answer::Frame(vec![Piece::Memory(text.into())], None)
}

/// A request that is answered when the test says so.
fn held() -> (oneshot::Sender<&'static str>, Begun) {
    let (sender, receiver) = oneshot::channel();
    (sender, Begun::Running(Box::pin(async move { frame(receiver.await.unwrap()) })))
}

/// The text of the next answer whose turn it is.
fn next(pipeline: &mut Pipeline) -> Option<String> {
    pipeline.next_answer().map(|answer| match answer {
        Answer::Frame(pieces, _) | Answer::Last(pieces, _) => {
            let bytes = pieces.into_iter().map(|piece| match piece {
                Piece::Memory(bytes) => bytes,
                Piece::Stored(range) => panic!("{range:?} in an answer of text"),
            });
            String::from_utf8(bytes.collect::<Vec<_>>().concat()).unwrap()
        }
        Answer::Nothing => "nothing".into(),
        Answer::Close(why) => why,
    })
}

fn poll(pipeline: &mut Pipeline) -> bool {
    pipeline.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn answers_keep_the_order_of_the_requests_whichever_is_done_first() {
    let mut pipeline = Pipeline::new(LIMITS);
    let (first, begun) = held();
    pipeline.push(Lane::Produce, 1, begun);
    let (second, begun) = held();
    pipeline.push(Lane::Produce, 1, begun);
    second.send("second").unwrap();
    assert!(poll(&mut pipeline));
    assert_eq!(next(&mut pipeline), None, "the second waits for the first");
    first.send("first").unwrap();
    assert!(poll(&mut pipeline));
    assert_eq!(next(&mut pipeline).as_deref(), Some("first"));
    assert_eq!(next(&mut pipeline).as_deref(), Some("second"));
    assert!(pipeline.is_empty());
}

#[test]
fn a_request_that_is_no_produce_runs_alone() {
    let mut pipeline = Pipeline::new(LIMITS);
    let (produce, begun) = held();
    pipeline.push(Lane::Produce, 1, begun);
    assert!(pipeline.may_begin(Lane::Produce, 1));
    assert!(!pipeline.may_begin(Lane::Alone, 1), "not while a produce is under way");
    produce.send("done").unwrap();
    poll(&mut pipeline);
    assert!(pipeline.may_begin(Lane::Alone, 1));
    let (_alone, begun) = held();
    pipeline.push(Lane::Alone, 1, begun);
    assert!(!pipeline.may_begin(Lane::Produce, 1));
    assert!(!pipeline.may_begin(Lane::Alone, 1));
    assert!(!pipeline.may_begin(Lane::Wait, 1));
}

#[test]
fn a_produce_overtakes_a_waiting_fetch_in_processing_but_not_in_answering() {
    let mut pipeline = Pipeline::new(LIMITS);
    let (fetch, begun) = held();
    pipeline.push(Lane::Wait, 1, begun);
    assert!(pipeline.may_begin(Lane::Produce, 1));
    assert!(!pipeline.may_begin(Lane::Wait, 1));
    pipeline.push(Lane::Produce, 1, Begun::Done(frame("produced")));
    poll(&mut pipeline);
    assert_eq!(next(&mut pipeline), None);
    fetch.send("fetched").unwrap();
    poll(&mut pipeline);
    assert_eq!(next(&mut pipeline).as_deref(), Some("fetched"));
    assert_eq!(next(&mut pipeline).as_deref(), Some("produced"));
}

#[test]
fn requests_and_their_bytes_are_bounded() {
    let mut pipeline = Pipeline::new(LIMITS);
    assert!(pipeline.may_begin(Lane::Produce, 5000), "a large frame passes alone");
    let (_sender, begun) = held();
    pipeline.push(Lane::Produce, 600, begun);
    assert!(!pipeline.may_begin(Lane::Produce, 500));
    for _ in 0..3 {
        assert!(pipeline.may_begin(Lane::Produce, 100));
        pipeline.push(Lane::Produce, 100, Begun::Done(Answer::Nothing));
    }
    assert!(!pipeline.may_begin(Lane::Produce, 0), "the fifth request waits");
}

#[test]
fn a_peer_that_is_gone_ends_waits_but_not_appends() {
    let mut pipeline = Pipeline::new(LIMITS);
    let (fetch, begun) = held();
    pipeline.push(Lane::Wait, 1, begun);
    let (produce, begun) = held();
    pipeline.push(Lane::Produce, 1, begun);
    pipeline.abandon_waits();
    assert!(fetch.is_closed());
    assert!(!produce.is_closed());
    assert_eq!(next(&mut pipeline).as_deref(), Some("nothing"));
    assert!(!pipeline.is_empty());
    produce.send("produced").unwrap();
    poll(&mut pipeline);
    assert_eq!(next(&mut pipeline).as_deref(), Some("produced"));
}

#[test]
fn nothing_begins_before_a_produce_has_entered() {
    let mut pipeline = Pipeline::new(LIMITS);
    let (admit, admitted) = oneshot::channel::<()>();
    let (durable, begun) = held();
    let entering = async move {
        admitted.await.unwrap();
        begun
    };
    pipeline.push(Lane::Produce, 1, Begun::Entering(Box::pin(entering)));
    poll(&mut pipeline);
    assert!(!pipeline.may_begin(Lane::Produce, 1), "the next one would overtake it");
    admit.send(()).unwrap();
    assert!(poll(&mut pipeline));
    assert!(pipeline.may_begin(Lane::Produce, 1));
    assert_eq!(next(&mut pipeline), None);
    durable.send("durable").unwrap();
    poll(&mut pipeline);
    assert_eq!(next(&mut pipeline).as_deref(), Some("durable"));
}
