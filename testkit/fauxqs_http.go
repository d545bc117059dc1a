package testkit

import "net/http"

// closingClient is an HTTP client whose idle connections can be closed at the end of a
// test, so that none of its goroutines outlives it.
type closingClient struct{ transport *http.Transport }

func (c *closingClient) client() *http.Client {
	c.transport = http.DefaultTransport.(*http.Transport).Clone()
	return &http.Client{Transport: c.transport}
}

func (c *closingClient) close() { c.transport.CloseIdleConnections() }
