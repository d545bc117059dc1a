// Package gclplugin is the boundary analyzer as a module plugin of golangci-lint, by the
// name "coordboundary". Its settings are the fields of boundary.Config in lower case:
//
//	linters:
//	  enable: [coordboundary]
//	  settings:
//	    custom:
//	      coordboundary:
//	        type: module
//	        settings:
//	          allowed: [example.com/app/migrations]
package gclplugin

import (
	"github.com/golangci/plugin-module-register/register"
	"golang.org/x/tools/go/analysis"

	"github.com/wrkbelt/coord/testkit/boundary"
)

// Name is the linter's.
const Name = "coordboundary"

func init() { //nolint:gochecknoinits // the plugin system finds a plugin only so
	register.Plugin(Name, New)
}

// New makes the plugin of golangci-lint's settings; an unknown setting is an error.
func New(settings any) (register.LinterPlugin, error) {
	config, err := register.DecodeSettings[boundary.Config](settings)
	if err != nil {
		return nil, err
	}
	return plugin{config}, nil
}

type plugin struct{ config boundary.Config }

func (p plugin) BuildAnalyzers() ([]*analysis.Analyzer, error) {
	return []*analysis.Analyzer{boundary.NewAnalyzer(p.config)}, nil
}

func (plugin) GetLoadMode() string { return register.LoadModeTypesInfo }
