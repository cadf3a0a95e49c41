# METADATA
# title: Deploy an application (application.deploy)
# description: |
#   Arguments {application, digest, strategy: canary or all}. Snapshot {exists, version, running, frozen, artifact:
#   {digest, signer, scan: {state, at, critical}}} of the application and that artifact. Read {digest, state, instances,
#   healthy_instances, deployments} of the deployment that carries the effect key.
# authors:
# - kblockd
package kblock.actions.deploy_application

import data.kblock.shared.tiers
import data.kblock.shared.times
import rego.v1

# METADATA
# description: What agents may deploy, and whose signature its artifacts must carry.
signers := {"storefront": {"ci-storefront"}, "invoicing": {"ci-invoicing", "ci-release"}}

# METADATA
# description: A scan may be so old, in seconds, and may have found so many critical flaws.
oldest_scan := 604800

most_critical := 0

approvers := ["release"]

decision := {"refusals": refusals, "tier": tier}

refusals contains {"code": "APPLICATION", "message": "agents may not deploy this application"} if {
	not known_application
}

known_application if signers[input.args.application]

refusals contains {"code": "NO_DIGEST", "message": "an artifact is named by its sha256 digest, not by a tag"} if {
	not named_by_digest
}

named_by_digest if {
	is_string(input.args.digest)
	regex.match(`^sha256:[0-9a-f]{64}$`, input.args.digest)
}

tier := tiers.approved_by(1, approvers, "CANARY", "a canary needs an approval by release") if {
	input.principal.kind == "agent"
	input.args.strategy == "canary"
} else := tiers.approved_by(2, approvers, "ALL_AT_ONCE", "a full deployment needs two of release") if {
	input.principal.kind == "agent"
	input.args.strategy == "all"
} else := tiers.denied

problems contains {"code": "NO_APPLICATION", "message": "the application does not exist"} if {
	not input.snapshot.exists == true
}

problems contains {"code": "FROZEN", "message": "deployments are frozen, or it is not known whether"} if {
	not input.snapshot.frozen == false
}

problems contains {"code": "OTHER_ARTIFACT", "message": "the snapshot is of another artifact"} if {
	not input.snapshot.artifact.digest == input.args.digest
}

problems contains {"code": "NOT_SIGNED", "message": "the artifact is not signed by who may build this application"} if {
	not signed
}

problems contains {"code": "NOT_SCANNED", "message": "the artifact has no fresh scan without critical flaws"} if {
	not scanned
}

problems contains {"code": "RUNS_ALREADY", "message": "this artifact runs already"} if {
	input.snapshot.running == input.args.digest
}

problems contains {"code": "NO_WAY_BACK", "message": "there is no earlier artifact to go back to"} if {
	not way_back
}

signed if input.snapshot.artifact.signer in signers[input.args.application]

scanned if {
	input.snapshot.artifact.scan.state == "passed"
	is_number(input.snapshot.artifact.scan.critical)
	input.snapshot.artifact.scan.critical <= most_critical
	times.within(input.snapshot.artifact.scan.at, oldest_scan)
}

way_back if {
	is_string(input.snapshot.running)
	input.snapshot.running != ""
}

verification := {"violations": violations, "shown": shown}

violations contains {"code": "OTHER_ARTIFACT", "message": "an artifact runs that nobody agreed to"} if {
	is_string(input.read.digest)
	count({input.read.digest} & {input.args.digest, input.snapshot.running}) == 0
}

violations contains {"code": "DUPLICATE", "message": "it was deployed more than once"} if {
	is_number(input.read.deployments)
	input.read.deployments > 1
}

shown := "expected" if {
	deployed
	input.read.state == "completed"
	input.read.healthy_instances == input.read.instances
} else := "tolerated" if {
	deployed
	input.args.strategy == "canary"
	input.read.state == "canary"
	input.read.healthy_instances >= 1
} else := ""

deployed if {
	input.read.digest == input.args.digest
	input.read.deployments == 1
	is_number(input.read.healthy_instances)
	is_number(input.read.instances)
	input.read.instances > 0
}

cautions contains {"code": "PRODUCTION", "message": "production is not deployed to again without a person"} if {
	input.action.environment == "production"
}
