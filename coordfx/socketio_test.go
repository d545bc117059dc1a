package coordfx_test

import (
	"testing"
	"time"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"
	"go.uber.org/zap"

	"github.com/wrkbelt/coord/coordfx"
	"github.com/wrkbelt/coord/redismodule"
	"github.com/wrkbelt/coord/testkit"
)

func TestSocketIOCarriesAMessageAndStopsWithTheApp(t *testing.T) {
	server := testkit.StartRedis(t)
	var adapter *redismodule.SocketIOAdapter
	app := fxtest.New(t, fx.NopLogger, coordfx.Module, coordfx.SocketIO,
		fx.Supply(coordfx.Config{Redis: redismodule.Config{URL: server.URL()}}, zap.NewNop()), fx.Populate(&adapter))
	app.RequireStart()
	got := make(chan string, 1)
	if _, err := adapter.Subscribe(t.Context(), "socket.io#/#", func(_ string, message []byte) { got <- string(message) }); err != nil {
		t.Fatal(err)
	}
	if err := adapter.Publish(t.Context(), "socket.io#/#", []byte("hello")); err != nil {
		t.Fatal(err)
	}
	select {
	case m := <-got:
		if m != "hello" {
			t.Errorf("message %q", m)
		}
	case <-time.After(20 * time.Second):
		t.Error("the message did not arrive")
	}
	app.RequireStop()
	if err := adapter.Publish(t.Context(), "socket.io#/#", nil); err == nil {
		t.Error("publish after stop succeeded, want ErrClosed")
	}
}
