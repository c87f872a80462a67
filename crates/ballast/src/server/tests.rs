//! Tests of the server over a real socket.
