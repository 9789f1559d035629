"""Client of the service: sessions over a WebSocket, registry and jobs over HTTP."""
