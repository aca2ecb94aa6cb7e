"""The routes, a module for each part of the API. A handler reads a request, asks domain and store, returns a view."""
