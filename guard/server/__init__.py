"""A detector served over HTTP: one ASGI application for uvicorn, a container and Ray Serve."""
