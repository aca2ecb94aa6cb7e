"""The routes, one module per part of the API. A handler reads a request, calls domain and store, returns a view."""
