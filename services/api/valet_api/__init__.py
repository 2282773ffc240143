"""HTTP gateway: authentication, sessions, documents; the only public port."""
