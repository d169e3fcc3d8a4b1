//! Connections: how many at once, and for how long in silence.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use weir_socket::Listener;

use crate::limits::LimitedListener;

/// Serves "hello" under limits; where.
async fn serve(connections_max: usize, idle: Duration) -> SocketAddr {
    let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)), None).await.unwrap();
    let address = listener.local_addr();
    let listener = LimitedListener::new(listener, connections_max, idle);
    let router = Router::new().route("/", get(async || "hello"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

async fn ask(socket: &mut TcpStream) -> Result<String, std::io::Error> {
    socket.write_all(b"GET / HTTP/1.1\r\nHost: weir\r\n\r\n").await?;
    let mut answer = vec![0; 4096];
    let read = socket.read(&mut answer).await?;
    if read == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(String::from_utf8_lossy(&answer[..read]).into_owned())
}

#[tokio::test]
async fn a_silent_connection_is_closed_and_a_busy_one_is_not() {
    let idle = Duration::from_millis(300);
    let address = serve(10, idle).await;
    let mut silent = TcpStream::connect(address).await.unwrap();
    // Half a request, and then nothing more.
    silent.write_all(b"GET / HT").await.unwrap();
    let mut busy = TcpStream::connect(address).await.unwrap();
    let mut rest = Vec::new();
    let closed = silent.read_to_end(&mut rest);
    let mut closed = std::pin::pin!(closed);
    loop {
        assert!(ask(&mut busy).await.unwrap().ends_with("hello"));
        if tokio::time::timeout(idle / 6, &mut closed).await.is_ok() {
            break;
        }
    }
    assert!(ask(&mut busy).await.unwrap().ends_with("hello"));
}

#[tokio::test]
async fn one_more_connection_than_allowed_waits_for_a_place() {
    let address = serve(1, Duration::from_secs(60)).await;
    let mut first = TcpStream::connect(address).await.unwrap();
    assert!(ask(&mut first).await.unwrap().ends_with("hello"));
    let mut second = TcpStream::connect(address).await.unwrap();
    let waiting = tokio::spawn(async move { ask(&mut second).await });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!waiting.is_finished());
    drop(first);
    assert!(waiting.await.unwrap().unwrap().ends_with("hello"));
}
