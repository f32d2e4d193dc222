-- What the GPU samples say of their clocks: bits of nvmlClocksEventReasons.

-- @macro limited_for_power(reasons)  whether clocks are reduced for power: SwPowerCap or HwPowerBrakeSlowdown.
CREATE MACRO limited_for_power(reasons) AS (reasons & (4 | 128)) > 0;

-- @macro limited_for_heat(reasons)  whether clocks are reduced for temperature: SwThermalSlowdown or
-- HwThermalSlowdown.
CREATE MACRO limited_for_heat(reasons) AS (reasons & (32 | 64)) > 0;
