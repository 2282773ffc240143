"""The one door of a sandbox: checks who comes, and passes them on to what runs inside."""
