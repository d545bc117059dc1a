// Package coordfx wires Coord into an fx application: include [Module], supply a
// [Config] and a *zap.Logger, and inject what you need by its contract.
//
// The module gives the graph exactly seven types: the five Redis-backed services, the
// idempotency log and the cron runner. A backend that nothing injects is never
// dialed and needs no setting.
package coordfx
