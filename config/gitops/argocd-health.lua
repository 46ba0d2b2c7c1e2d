-- Health of SnapshotSchedules and SnapshotRuns for Argo CD (resource.customizations.health.snapscheduler.backube_SnapshotSchedule and ..._SnapshotRun).
-- A schedule is healthy when it is valid and scheduled, whether a run has come yet or not. A run that failed makes it Degraded, which shows and
-- blocks no sync. What may be left quiesced is Degraded too.
local hs = {status = "Progressing", message = "not looked at yet"}
if obj.status == nil then
  return hs
end
local conditions = {}
for _, c in ipairs(obj.status.conditions or {}) do
  conditions[c.type] = c
end

if obj.kind == "SnapshotRun" then
  local complete = conditions["Complete"]
  if complete == nil or complete.status ~= "True" then
    hs.message = obj.status.phase or hs.message
    return hs
  end
  hs.status, hs.message = "Healthy", obj.status.message or ""
  if obj.status.result == "Failed" or obj.status.result == "PartiallyFailed" then
    hs.status = "Degraded"
  end
  return hs
end

local ready, last, quiesced = conditions["Ready"], conditions["LastRunSucceeded"], conditions["MayBeQuiesced"]
if ready == nil or (ready.observedGeneration or 0) ~= (obj.metadata.generation or 0) then
  return hs
end
if quiesced ~= nil and quiesced.status == "True" and quiesced.reason == "GivenUp" then
  hs.status, hs.message = "Degraded", quiesced.message
elseif ready.status ~= "True" then
  hs.status, hs.message = "Degraded", ready.message
elseif ready.reason == "Disabled" then
  hs.status, hs.message = "Suspended", ready.message
elseif last ~= nil and last.status == "False" then
  hs.status, hs.message = "Degraded", last.message
else
  hs.status, hs.message = "Healthy", ""
end
return hs
