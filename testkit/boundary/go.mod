module github.com/wrkbelt/coord/testkit/boundary

go 1.26.0

require (
	github.com/golangci/plugin-module-register v0.1.2
	go.uber.org/fx v1.24.0
	golang.org/x/tools v0.52.0
)

require (
	go.uber.org/dig v1.19.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	go.uber.org/multierr v1.10.0 // indirect
	go.uber.org/zap v1.26.0 // indirect
	golang.org/x/mod v0.42.0 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
