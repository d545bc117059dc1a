package recipes

import "github.com/wrkbelt/coord/coordfx"

// ConfigWithQueues adds to the environment what it cannot say.
func ConfigWithQueues(mediaQueueURL string) (coordfx.Config, error) {
	config, err := coordfx.ConfigFromEnv()
	config.SQS.Queues = map[string]string{"media": mediaQueueURL}
	return config, err
}
