"""The portal: a sandbox's only door. One process, one unix socket, shown to every sandbox."""
