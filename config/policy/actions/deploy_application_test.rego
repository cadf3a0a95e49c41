package kblock.actions.deploy_application_test

import data.kblock.shared.samples_test as samples
import rego.v1

digest := concat("", ["sha256:", "4f7c21b05a9e8d3364f7c21b05a9e8d3364f7c21b05a9e8d3364f7c21b05a9e8"])

running := concat("", ["sha256:", "00aa21b05a9e8d3364f7c21b05a9e8d3364f7c21b05a9e8d3364f7c21b05a9e8"])

base := samples.call(
	"application.deploy",
	"production",
	{"application": "storefront", "digest": digest, "strategy": "canary"},
	{
		"exists": true, "version": 41, "running": running, "frozen": false,
		"artifact": {
			"digest": digest, "signer": "ci-storefront",
			"scan": {"state": "passed", "at": "2026-11-22T10:00:00Z", "critical": 0},
		},
	},
	{"digest": digest, "state": "completed", "instances": 6, "healthy_instances": 6, "deployments": 1},
)

changed(path, value) := samples.changed(base, path, value)

invoicing(signer) := samples.changed(changed("/args/application", "invoicing"), "/snapshot/artifact/signer", signer)

everywhere := changed("/args/strategy", "all")

test_a_canary_needs_one_of_release if {
	samples.effect(base) == ["require_approval", 1, ["CANARY"]]
	samples.effect(invoicing("ci-invoicing")) == ["require_approval", 1, ["CANARY"]]
	samples.roles(base) == ["release"]
	samples.effect(samples.posing(base, "person")) == samples.denied
}

test_a_full_deployment_needs_two if {
	samples.effect(everywhere) == ["require_approval", 2, ["ALL_AT_ONCE"]]
	samples.roles(everywhere) == ["release"]
	samples.effect(samples.posing(everywhere, "person")) == samples.denied
	samples.effect(changed("/args/strategy", "blue")) == samples.denied
}

test_only_known_applications if {
	samples.effect(changed("/args/application", "kernel")) == ["deny", 0, ["APPLICATION"]]
	samples.effect(changed("/args/application", null)) == ["deny", 0, ["APPLICATION"]]
}

test_an_artifact_is_named_by_its_digest if {
	every value in ["storefront:latest", "sha256:4f7c", upper(digest), concat("", [digest, "0"]), "", null] {
		samples.effect(changed("/args/digest", value)) == ["deny", 0, ["NO_DIGEST"]]
	}
}

test_the_artifact_may_be_deployed if samples.problems(base) == set()

test_an_application_that_does_not_exist if samples.problems(changed("/snapshot/exists", false)) == {"NO_APPLICATION"}

test_a_freeze if {
	samples.problems(changed("/snapshot/frozen", true)) == {"FROZEN"}
	samples.problems(samples.without(base, "/snapshot/frozen")) == {"FROZEN"}
}

test_a_snapshot_of_another_artifact if {
	samples.problems(changed("/snapshot/artifact/digest", running)) == {"OTHER_ARTIFACT"}
}

test_the_right_signature if {
	samples.problems(changed("/snapshot/artifact/signer", "ci-invoicing")) == {"NOT_SIGNED"}
	samples.problems(samples.without(base, "/snapshot/artifact/signer")) == {"NOT_SIGNED"}
	samples.problems(invoicing("ci-invoicing")) == set()
	samples.problems(invoicing("ci-release")) == set()
	samples.problems(invoicing("ci-storefront")) == {"NOT_SIGNED"}
}

test_a_fresh_scan_without_critical_flaws if {
	every path, values in {
		"/snapshot/artifact/scan/state": ["failed", null],
		"/snapshot/artifact/scan/critical": [1, "0", null],
		"/snapshot/artifact/scan/at": ["2026-11-22T09:59:59Z", "2026-11-29T10:00:01Z", null],
		"/snapshot/artifact/scan": [null, {}],
	} {
		every value in values {
			samples.problems(changed(path, value)) == {"NOT_SCANNED"}
		}
	}
}

test_it_runs_already if samples.problems(changed("/snapshot/running", digest)) == {"RUNS_ALREADY"}

test_there_must_be_a_way_back if {
	samples.problems(changed("/snapshot/running", "")) == {"NO_WAY_BACK"}
	samples.problems(changed("/snapshot/running", null)) == {"NO_WAY_BACK"}
}

test_deployed_and_healthy if {
	samples.verdict(base) == samples.expected
	lone := samples.changed(changed("/read/instances", 1), "/read/healthy_instances", 1)
	samples.verdict(lone) == samples.expected
}

test_a_healthy_canary_is_tolerated if {
	canary := samples.changed(changed("/read/state", "canary"), "/read/healthy_instances", 1)
	samples.verdict(canary) == samples.tolerated
	samples.verdict(samples.changed(canary, "/read/healthy_instances", 0)) == samples.unseen
	samples.verdict(samples.changed(canary, "/args/strategy", "all")) == samples.unseen
	every path, value in {"/read/healthy_instances": "6", "/read/instances": "6", "/read/deployments": 0} {
		samples.verdict(samples.changed(canary, path, value)) == samples.unseen
	}
	samples.verdict(samples.changed(canary, "/read/state", "running")) == samples.unseen
}

test_what_is_not_done_or_cannot_be_read_proves_nothing if {
	every path, values in {
		"/read/state": ["running", null],
		"/read/digest": [running, null],
		"/read/healthy_instances": [5, "6", null],
		"/read/instances": ["6", null],
		"/read/deployments": [0, "1", null],
		"/read": [null, {}],
	} {
		every value in values {
			samples.verdict(changed(path, value)) == samples.unseen
		}
	}
	none := samples.changed(changed("/read/instances", 0), "/read/healthy_instances", 0)
	samples.verdict(none) == samples.unseen
}

test_an_artifact_that_nobody_agreed_to if {
	samples.verdict(changed("/read/digest", "sha256:ff")) == ["prohibited", ["OTHER_ARTIFACT"]]
}

test_deployed_twice if samples.verdict(changed("/read/deployments", 2)) == ["prohibited", ["DUPLICATE"]]

test_production_is_not_deployed_to_by_itself_again if {
	samples.recovery(base) == ["manual", ["PRODUCTION"]]
	samples.recovery(changed("/action/environment", "staging")) == samples.retry
}
