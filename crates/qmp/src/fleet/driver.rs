//! The task of one guest: moves bytes between its socket and its monitor, and reconnects.
//!
//! Cost: a tick is one write and one or two reads. The read buffer is on the stack, so that an idle
//! guest needs no memory for it.

use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ballast_model::LinkDown;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::clock::CallerClock;
use super::slot::{GuestSlot, SlotState};
use crate::client::{READ_BYTES, connect, peer_pid, peer_socket};

/// Most reads of one guest before other guests get their turn.
const READS_PER_TURN: usize = 8;

/// Connects and reconnects until the task is aborted.
pub(super) async fn drive(slot: Arc<GuestSlot>, path: Arc<Path>, clock: Arc<CallerClock>) {
    loop {
        let why = match connect(&path).await {
            Err(why) => why,
            Ok(stream) => {
                slot.lock().connected(clock.read().0, peer_pid(&stream), peer_socket(&stream));
                let mut connection = SocketConnection { stream };
                let mut timer = pin!(sleep_until(Instant::now()));
                poll_fn(|cx| connection.poll(cx, timer.as_mut(), &slot, &clock)).await
            }
        };
        let wait = slot.lock().disconnected(why);
        let mut wait = pin!(sleep(wait));
        poll_fn(|cx| {
            let mut state = slot.lock();
            if std::mem::take(&mut state.retry) {
                return Poll::Ready(());
            }
            state.waker = Some(cx.waker().clone());
            drop(state);
            wait.as_mut().poll(cx)
        })
        .await;
    }
}

struct SocketConnection {
    stream: UnixStream,
}

impl SocketConnection {
    /// Reads and writes as much as possible now. Ready, with the reason, when the connection is
    /// over.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut timer: Pin<&mut Sleep>,
        slot: &GuestSlot,
        clock: &CallerClock,
    ) -> Poll<LinkDown> {
        let mut guard = slot.lock();
        let state = &mut *guard;
        if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        loop {
            if let Err(why) = self.read(cx, state, clock) {
                return Poll::Ready(why);
            }
            if let Err(why) = state.link.step(clock.read().0) {
                return Poll::Ready(why);
            }
            if let Poll::Ready(Err(why)) = self.write(cx, state) {
                return Poll::Ready(why);
            }
            state.deliver();
            let Some(at) = state.link.guest.next_timeout() else { return Poll::Pending };
            // Deadlines mostly move to later times: one early wake-up is cheaper than resetting the
            // timer with every command.
            let due = clock.instant(at);
            if timer.is_elapsed() || due < timer.deadline() {
                timer.as_mut().reset(due);
            }
            ready!(timer.as_mut().poll(cx));
        }
    }

    /// Reads the bytes available.
    fn read(
        &mut self,
        cx: &mut Context<'_>,
        state: &mut SlotState,
        clock: &CallerClock,
    ) -> Result<(), LinkDown> {
        for _ in 0..READS_PER_TURN {
            let mut space = [MaybeUninit::uninit(); READ_BYTES];
            let mut buffer = ReadBuf::uninit(&mut space);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Err(error)) => return Err(LinkDown::Closed(error.to_string())),
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
                    return Err(LinkDown::Closed("end of stream".to_owned()));
                }
                Poll::Ready(Ok(())) => {
                    let (now, wall_secs) = clock.read();
                    state.link.guest.receive(buffer.filled(), now, wall_secs)?;
                }
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    /// Writes the outgoing bytes.
    fn write(&mut self, cx: &mut Context<'_>, state: &mut SlotState) -> Poll<Result<(), LinkDown>> {
        while !state.link.guest.outgoing().is_empty() {
            let written = Pin::new(&mut self.stream).poll_write(cx, state.link.guest.outgoing());
            match ready!(written) {
                Ok(count) => state.link.guest.mark_written(count),
                Err(error) => return Poll::Ready(Err(LinkDown::Closed(error.to_string()))),
            }
        }
        Poll::Ready(Ok(()))
    }
}
