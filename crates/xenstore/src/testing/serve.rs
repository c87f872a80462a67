//! The store on a socket.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use super::peer::StorePeer;

const READ_BYTES: usize = 64 << 10;

/// A store that a test and its clients share.
pub type SharedStore = Arc<Mutex<StorePeer>>;

/// Serves `store` to all clients, until the future is dropped.
pub async fn serve(listener: UnixListener, store: SharedStore) {
    let mut clients = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let store = Arc::clone(&store);
        clients.spawn(async move {
            // A client that disconnects leaves an error, which does not matter.
            let _ = converse(stream, &store).await;
        });
    }
}

async fn converse(mut stream: UnixStream, store: &SharedStore) -> io::Result<()> {
    let lock = || store.lock().unwrap_or_else(PoisonError::into_inner);
    let (client, wakes) = lock().connect();
    let mut bytes = vec![0; READ_BYTES];
    let ended = loop {
        let outgoing = lock().take_outgoing(client);
        if !outgoing.is_empty() {
            if let Err(error) = stream.write_all(&outgoing).await {
                break Err(error);
            }
            continue;
        }
        tokio::select! {
            () = wakes.notified() => {}
            read = stream.read(&mut bytes) => match read {
                Ok(0) => break Ok(()),
                Ok(read) => {
                    let taken = lock().receive(client, &bytes[..read]);
                    if let Err(why) = taken {
                        break Err(io::Error::other(why));
                    }
                }
                Err(error) => break Err(error),
            },
        }
    };
    lock().disconnect(client);
    ended
}
